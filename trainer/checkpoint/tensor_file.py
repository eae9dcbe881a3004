"""Writes a safetensors file one tensor after the other.

safetensors' own `save_file` needs all tensors at once, does not hash what it writes, and on a full disk raises an error
that is not an OSError. The layout is that of https://github.com/huggingface/safetensors: eight bytes with the length of
a JSON header, the header, the tensors without gaps. `safetensors.safe_open` reads it.
"""

import hashlib
import json
import math
import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import torch
from torch import Tensor

from configs.process.files.inside import opened
from trainer.checkpoint.format import FileRecord, write_all

CHUNK_BYTES = 8 << 20
"""Bytes written and hashed at a time."""
_ALIGNMENT = 8
_FLOAT_BYTES = 4


class Cancelled(Exception):  # noqa: N818 (no error)
    """The file was given up."""


class TensorFile:
    """A safetensors file of fp32 tensors, being written; the same tensors give the same bytes.

    It needs no memory beyond the caller's one tensor. The file must not exist yet.
    """

    def __init__(
        self, path: Path, shapes: Mapping[str, Sequence[int]], *, cancelled: threading.Event | None = None
    ) -> None:
        """Open the file and write its header.

        Args:
            path: of the file.
            shapes: of every tensor, in the order in which they will come.
            cancelled: once set, the next `write` raises Cancelled.

        Raises:
            OSError: it cannot be written.
        """
        self._coming = list(shapes.items())
        self._cancelled = cancelled or threading.Event()
        self._hash = hashlib.sha256()
        self._num_bytes = 0
        self._file = opened(path, "xb", buffering=0)
        try:
            self._write(_header(shapes))
        except BaseException:
            self._file.close()
            raise

    def write(self, name: str, tensor: Tensor) -> None:
        """Write the next tensor.

        Raises:
            OSError: it cannot be written.
            ValueError: another tensor comes next.
            Cancelled: the file was given up.
        """
        expected = (name, tensor.dtype, list(tensor.shape))
        if not self._coming or (self._coming[0][0], torch.float32, list(self._coming[0][1])) != expected:
            raise ValueError(f"{expected} is not what comes next: {self._coming[:1]}")
        self._coming.pop(0)
        content = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
        for begin in range(0, len(content), CHUNK_BYTES):
            if self._cancelled.is_set():
                raise Cancelled
            self._write(content[begin : begin + CHUNK_BYTES])

    def finish(self) -> FileRecord:
        """Fsync the file and close it.

        Raises:
            OSError: that failed.
            ValueError: tensors are missing.
        """
        if self._coming:
            raise ValueError(f"{self._coming[0][0]} is missing")
        os.fsync(self._file.fileno())
        self._file.close()
        return FileRecord(bytes=self._num_bytes, sha256=self._hash.hexdigest())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        """Close the file, finished or not."""
        self._file.close()

    def _write(self, content: memoryview | bytes) -> None:
        self._hash.update(content)
        self._num_bytes += len(content)
        write_all(self._file.fileno(), content)


def _header(shapes: Mapping[str, Sequence[int]]) -> bytes:
    entries, begin = {}, 0
    for name, shape in shapes.items():
        end = begin + _FLOAT_BYTES * math.prod(shape)
        entries[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [begin, end]}
        begin = end
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    return len(text).to_bytes(8, "little") + text
