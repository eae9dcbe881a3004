"""The reduce step of preparation: gathers and shuffles a shard's pairs, and writes them as blocks.

The same pairs give the same bytes. Only this module imports webdataset (and through it torch).
"""

import hashlib
import io
import os
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from configs.process.files.inside import opened, replacing

os.environ.setdefault("WDS_SECURE", "1")  # webdataset reads it at import; it keeps `pipe:` URLs from running in a shell

import numpy as np
import webdataset
from numpy.typing import NDArray

from data_pipeline.preparation.writing.encode import EncodeJob
from data_pipeline.preparation.writing.spill import PairRows, first_occurrences, take_at
from data_pipeline.prepared.index import BLOCK_DTYPE, ShardEntry, block_key, hash_file

Pieces = NDArray[np.unsignedinteger]


def sync(file: BinaryIO) -> None:
    """Fsync a file."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardJob:
    """The part of the work that a process needs to write shards."""

    encoding: EncodeJob
    folder: Path
    """For the tars."""
    tables: Path
    """The folder for the shards' tables."""
    pairs_per_block: int

    def open(self) -> Callable[[int], int]:
        """The function that writes a shard and returns its number of pairs."""
        return self.write_shard

    def write_shard(self, shard: int) -> int:
        """Gather, shuffle and write a shard; its table is written last and marks it complete."""
        pairs = self.encoding.spill_folder().read(shard)
        left = np.arange(len(pairs))
        if self.encoding.section.cleaning.duplicates == "drop":
            left = left[first_occurrences(pairs.hashes)]
        order = left[np.argsort(pairs.keys[left], kind="stable")]
        with replacing(self.folder / shard_name(shard)) as file:
            blocks = _write_blocks(file, shard, pairs, order, self.pairs_per_block)
            sync(file)
            whole = _hash_blocks(file, blocks)
            size = file.tell()
        beside: dict[str, Any] = {"places": pairs.places, "scores": pairs.scores}
        arrays = {name: values[order] for name, values in beside.items() if values is not None}
        with replacing(self.table(shard), sync=True) as file:
            np.savez(
                file,
                blocks=blocks,
                lengths=pairs.lengths[order],
                sha256=whole,
                bytes=size,
                duplicates=len(pairs) - len(order),
                **arrays,
            )
        return len(order)

    def is_complete(self, shard: int) -> bool:
        """Whether a shard and its table exist, as they were written."""
        try:
            return hash_file(self.folder / shard_name(shard)) == self.read_table(shard).entry.sha256
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            return False

    def table(self, shard: int) -> Path:
        """A shard's data for the index."""
        return self.tables / f"{shard:06d}.npz"

    def num_pairs(self, num_shards: int) -> int:
        """Number of pairs of all shards."""
        count = 0
        for shard in range(num_shards):
            with opened(self.table(shard)) as file, np.load(file, allow_pickle=False) as content:
                count += int(content["blocks"]["pairs"].sum())
        return count

    def read_table(self, shard: int) -> "ShardTable":
        """What `write_shard` noted."""
        with opened(self.table(shard)) as file, np.load(file, allow_pickle=False) as content:
            blocks = content["blocks"]
            entry = ShardEntry(
                file=shard_name(shard),
                bytes=int(content["bytes"]),
                sha256=str(content["sha256"]),
                pairs=int(blocks["pairs"].sum()),
                blocks=len(blocks),
                source_tokens=int(blocks["source_tokens"].sum()),
                target_tokens=int(blocks["target_tokens"].sum()),
            )
            beside = (content.get(name) for name in ("places", "scores"))
            return ShardTable(entry, blocks, content["lengths"], int(content["duplicates"]), *beside)


@dataclass(frozen=True, slots=True)
class ShardTable:
    """A shard's data for the index. First pairs of blocks are counted within the shard."""

    entry: ShardEntry
    blocks: NDArray[np.void]
    lengths: NDArray[np.uint16]
    duplicates: int
    places: NDArray[np.uint64] | None
    scores: NDArray[np.float32] | None


def _write_blocks(
    file: BinaryIO, shard: int, pairs: PairRows, order: NDArray[np.int64], pairs_per_block: int
) -> NDArray[np.void]:
    """Write pairs in a given order, and return the table of their blocks, still without hashes."""
    starts = np.cumsum(pairs.lengths, axis=0, dtype=np.int64) - pairs.lengths
    writer: Any = webdataset.TarWriter(
        file, user="zeromt", group="zeromt", mode=0o444, mtime=0, compress=False, encoder=False
    )
    firsts = range(0, len(order), pairs_per_block)
    blocks = np.zeros(len(firsts), dtype=BLOCK_DTYPE)
    for row, first in enumerate(firsts):
        rows = order[first : first + pairs_per_block]
        lengths = pairs.lengths[rows]
        source = take_at(pairs.source, starts[rows, 0], lengths[:, 0])
        target = take_at(pairs.target, starts[rows, 1], lengths[:, 1])
        offset = writer.tarstream.offset
        writer.write(
            {
                "__key__": block_key(shard, row),
                "src.npy": npy_bytes(source),
                "tgt.npy": npy_bytes(target),
                "len.npy": npy_bytes(lengths),
            }
        )
        size = writer.tarstream.offset - offset
        longest = lengths.max(axis=0).tolist()
        blocks[row] = (shard, offset, size, len(rows), first, len(source), len(target), *longest, np.zeros(32, "u1"))
    writer.close()
    return blocks


def _hash_blocks(file: BinaryIO, blocks: NDArray[np.void]) -> str:
    """Fill in the blocks' hashes from the written file, and return the hash of the whole file."""
    whole = hashlib.sha256()
    file.seek(0)
    for block in blocks:
        data = file.read(int(block["bytes"]))
        whole.update(data)
        block["sha256"] = np.frombuffer(hashlib.sha256(data).digest(), dtype=np.uint8)
    while data := file.read(1 << 20):
        whole.update(data)
    return whole.hexdigest()
