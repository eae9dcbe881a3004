"""Tables of a dataset: small ones in memory, large ones read from an open file; none is mapped.

A mapped file that is overwritten in place shows the other's bytes, and ends the process with SIGBUS where it was cut
short. What is in memory stays, and what is read is compared with the state that the file had when it was opened.
"""

import io
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from configs.process.files import inside
from data_pipeline.errors import DataError, OtherDataError
from data_pipeline.prepared.index import FileEntry
from data_pipeline.prepared.storage import Storage

MAX_IN_MEMORY = 1 << 26
"""Bytes of a table that every rank and loader process holds: lengths of 16 million pairs."""
MAX_GAP = 1 << 14
"""Rows between two wanted ones that are rather read than skipped."""
OPENINGS = 5

T = TypeVar("T")


class FileTable:
    """A .npy file of which some rows at a time are read: a slice, or those with some numbers."""

    def __init__(self, path: Path, name: str, *, may_be_touched: bool) -> None:
        """Open it.

        Args:
            path: the file.
            name: its name in messages.
            may_be_touched: whether its time may change, as in a cache, which goes by it.

        Raises:
            ValueError: it is no table.
        """
        self._file, self._name, self._may_be_touched = inside.opened(path), name, may_be_touched
        version = np.lib.format.read_magic(self._file)
        read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        self.shape, is_fortran, self.dtype = read_header(self._file)
        self._start = self._file.tell()
        self._row_bytes = self.dtype.itemsize * int(np.prod(self.shape[1:], dtype=np.int64))
        self._was = self._state()
        if is_fortran or self.dtype.hasobject or self._was[0] != self._start + len(self) * self._row_bytes:
            raise ValueError("has another size than its header says")

    def __len__(self) -> int:
        return int(self.shape[0])

    def __getitem__(self, key: slice | NDArray[np.int64]) -> NDArray[Any]:
        """Some rows.

        Raises:
            OtherDataError: the file was changed since it was opened.
        """
        if isinstance(key, slice):
            first, last, step = key.indices(len(self))
            values = self._read(first, max(first, last))[::step]
        elif len(key) == 0:
            values = self._read(0, 0)
        else:
            rows, back = np.unique(key, return_inverse=True)
            runs = np.split(rows, np.flatnonzero(np.diff(rows) > MAX_GAP) + 1)
            values = np.concatenate([self._read(int(run[0]), int(run[-1]) + 1)[run - run[0]] for run in runs])[back]
        if self._state() != self._was:
            raise OtherDataError(f"{self._name}: was changed while it was read; start again with a whole dataset")
        return values

    def sum(self, **options: Any) -> NDArray[Any]:
        """As that of the whole array."""
        total: NDArray[Any] = self[:].sum(**options)
        return total

    def _read(self, first: int, last: int) -> NDArray[Any]:
        size = (last - first) * self._row_bytes
        data = b""
        while len(data) < size:
            more = os.pread(self._file.fileno(), size - len(data), self._start + first * self._row_bytes + len(data))
            if not more:
                raise OtherDataError(f"{self._name}: was cut short while it was read; start again with a whole dataset")
            data += more
        return np.frombuffer(data, self.dtype).reshape(-1, *self.shape[1:])

    def _state(self) -> tuple[int, int]:
        status = os.fstat(self._file.fileno())
        return status.st_size, 0 if self._may_be_touched else status.st_mtime_ns


def open_table(storage: Storage, entry: FileEntry) -> NDArray[Any]:
    """A table of a dataset whose files were checked: an array, or what can be subscripted like one.

    Raises:
        DataError: it is no table.
    """
    name = storage.path(entry.file)
    may_be_touched = "://" in storage.location
    try:
        if entry.bytes <= MAX_IN_MEMORY:
            content = opened(storage, entry, inside.read_bytes, hashed=False)
            table: NDArray[Any] = np.load(io.BytesIO(content), allow_pickle=False)
            return table
        use = partial(FileTable, name=name, may_be_touched=may_be_touched)
        return cast("NDArray[Any]", opened(storage, entry, use, hashed=False))
    except (OSError, ValueError, EOFError, MemoryError) as error:  # a forged header may ask for any size
        raise DataError(f"{name}: is no table: {' '.join(str(error).split())}") from error


def opened(storage: Storage, entry: FileEntry, use: Callable[[Path], T], *, hashed: bool = True) -> T:
    """Open a side file. It may be evicted from the cache at any time, but an open file stays readable."""
    for _ in range(OPENINGS):
        try:
            return use(storage.fetch(entry, hashed=hashed))
        except FileNotFoundError:
            continue
    raise DataError(f"{storage.path(entry.file)}: was removed {OPENINGS} times; raise stream.cache_gigabytes")
