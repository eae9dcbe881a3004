"""Writing blocks of pairs to webdataset shards, the same bytes for the same pairs.

The one module that imports webdataset (and through it torch).
"""

import hashlib
import io
import os
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

os.environ.setdefault("WDS_SECURE", "1")  # webdataset reads it at import: no `pipe:` URL ever runs in a shell

import numpy as np
import webdataset
from numpy.typing import NDArray

from data_pipeline.encode import EncodedChunk
from data_pipeline.index import BLOCK_DTYPE, LENGTHS_FILE, ShardEntry, block_key

Pieces = NDArray[np.unsignedinteger]


def sync(file: BinaryIO) -> None:
    """Have a file's bytes on the disk."""
    file.flush()
    os.fsync(file.fileno())


def npy_bytes(array: NDArray[np.generic]) -> bytes:
    """What `np.save` writes."""
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def shard_name(number: int) -> str:
    """File name of a shard."""
    return f"train-{number:06d}.tar"


class ShardWriter:
    """Cuts encoded chunks into blocks and writes them to shards, and all pairs' lengths beside them."""

    def __init__(self, folder: Path, *, pairs_per_block: int, blocks_per_shard: int, dtype: str) -> None:
        self._folder = folder
        self._pairs_per_block = pairs_per_block
        self._blocks_per_shard = blocks_per_shard
        self._sources = [np.empty(0, dtype=dtype)]
        self._targets = [np.empty(0, dtype=dtype)]
        self._lengths = [np.empty((0, 2), dtype=np.uint16)]
        self._waiting = 0
        self._rows: list[tuple[int, ...]] = []  # blocks of the shard being written
        self._tables: list[NDArray[np.void]] = []  # blocks of the finished shards
        self._file: BinaryIO | None = None
        self._raw_lengths = (folder / f"{LENGTHS_FILE}.raw").open("w+b")
        self.shards: list[ShardEntry] = []
        self.num_pairs = 0
        self.num_blocks = 0

    def __enter__(self) -> "ShardWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let go of the files; `finish` is what completes them."""
        self._raw_lengths.close()
        if self._file is not None:
            self._file.close()

    def add(self, chunk: EncodedChunk) -> None:
        """Take in a chunk, and write the blocks that are full."""
        self._sources.append(chunk.source)
        self._targets.append(chunk.target)
        self._lengths.append(chunk.lengths)
        self._waiting += len(chunk.lengths)
        if self._waiting >= self._pairs_per_block:
            self._write_waiting(self._waiting // self._pairs_per_block * self._pairs_per_block)

    def finish(self) -> NDArray[np.void]:
        """Write what is left, and the table of lengths. Returns the table of blocks."""
        self._write_waiting(self._waiting)
        self._end_shard()
        with (self._folder / LENGTHS_FILE).open("wb") as file:
            header = {"descr": "<u2", "fortran_order": False, "shape": (self.num_pairs, 2)}
            np.lib.format.write_array_header_1_0(file, header)
            self._raw_lengths.seek(0)
            while data := self._raw_lengths.read(1 << 20):
                file.write(data)
            sync(file)
        self._raw_lengths.close()
        (self._folder / f"{LENGTHS_FILE}.raw").unlink()
        return np.concatenate(self._tables) if self._tables else np.empty(0, dtype=BLOCK_DTYPE)

    def _write_waiting(self, pairs: int) -> None:
        """Write the first `pairs` waiting pairs in blocks."""
        source, target = np.concatenate(self._sources), np.concatenate(self._targets)
        lengths = np.concatenate(self._lengths)
        ends = np.concatenate([np.zeros((1, 2), dtype=np.int64), np.cumsum(lengths, axis=0, dtype=np.int64)])
        for first in range(0, pairs, self._pairs_per_block):
            last = min(first + self._pairs_per_block, pairs)
            (s0, t0), (s1, t1) = ends[first], ends[last]
            self._write_block(source[s0:s1], target[t0:t1], lengths[first:last])
        s0, t0 = ends[pairs]
        # Copies, so that what was written is let go of.
        self._sources, self._targets = [source[s0:].copy()], [target[t0:].copy()]
        self._lengths = [lengths[pairs:].copy()]
        self._waiting -= pairs

    def _write_block(self, source: Pieces, target: Pieces, lengths: NDArray[np.uint16]) -> None:
        if self._file is None:
            self._start_shard()
        tar = self._writer.tarstream
        offset = tar.offset
        self._writer.write(
            {
                "__key__": block_key(len(self.shards), len(self._rows)),
                "src.npy": npy_bytes(source),
                "tgt.npy": npy_bytes(target),
                "len.npy": npy_bytes(lengths),
            }
        )
        size = tar.offset - offset
        shard = len(self.shards)
        longest = lengths.max(axis=0).tolist()
        self._rows.append((shard, offset, size, len(lengths), self.num_pairs, len(source), len(target), *longest))
        self._raw_lengths.write(lengths.astype("<u2").tobytes())
        self.num_pairs += len(lengths)
        self.num_blocks += 1
        if len(self._rows) == self._blocks_per_shard:
            self._end_shard()

    def _start_shard(self) -> None:
        self._file = (self._folder / shard_name(len(self.shards))).open("w+b")
        self._writer = webdataset.TarWriter(
            self._file, user="zeromt", group="zeromt", mode=0o444, mtime=0, compress=False, encoder=False
        )

    def _end_shard(self) -> None:
        """Complete the shard, and take its hashes from what was written."""
        if self._file is None:
            return
        self._writer.close()
        sync(self._file)
        whole = hashlib.sha256()
        table = np.zeros(len(self._rows), dtype=BLOCK_DTYPE)
        self._file.seek(0)
        for entry, row in zip(table, self._rows, strict=True):
            data = self._file.read(row[2])
            whole.update(data)
            entry["sha256"] = np.frombuffer(hashlib.sha256(data).digest(), dtype=np.uint8)
            for name, value in zip(BLOCK_DTYPE.names or (), row, strict=False):
                entry[name] = value
        whole.update(self._file.read())
        self.shards.append(
            ShardEntry(
                file=shard_name(len(self.shards)),
                bytes=self._file.tell(),
                sha256=whole.hexdigest(),
                pairs=int(table["pairs"].sum()),
                blocks=len(table),
                source_tokens=int(table["source_tokens"].sum()),
                target_tokens=int(table["target_tokens"].sum()),
            )
        )
        self._tables.append(table)
        self._file.close()
        self._file, self._rows = None, []
