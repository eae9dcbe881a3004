"""A dataset of any size without text: index and tables are complete, shards are sparse files.

Opening and planning read nothing else, so they cost the same as with a real dataset.
"""

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from data_pipeline.prepared.dataset import MAX_HASHED_LENGTHS
from data_pipeline.prepared.index import (
    BLOCK_DTYPE,
    BLOCKS_FILE,
    INDEX_FILE,
    LENGTHS_FILE,
    REPORT_FILE,
    VERSION,
    DatasetIndex,
    FileEntry,
    ShardEntry,
    TokenizerEntry,
    describe_file,
)
from data_pipeline.tokenizer import fingerprint_of

PAIRS_PER_BLOCK = 1024
BLOCKS_PER_SHARD = 1024
MEDIAN_PIECES, SIGMA, MAX_PIECES = 20, 0.6, 512
NUM_LENGTH_PAIRS = 1 << 20
VOCAB_SIZE = 32_000
NO_HASH = "0" * 64
"""Hash of files that are not verified on opening: shards, and length tables above MAX_HASHED_LENGTHS."""


def write_dataset(folder: Path, pairs: int, *, seed: int = 1) -> None:
    """Write a dataset with log-normal lengths that are correlated between the sides of a pair.

    The lengths of each pair are chosen among a million precomputed ones, so that billions of pairs take a minute.

    Args:
        folder: created by this function.
        pairs: number of pairs; the length table takes four bytes of disk for each.
        seed: of the lengths.
    """
    folder.mkdir(parents=True)
    known = _length_pairs(seed)
    shard_pairs = PAIRS_PER_BLOCK * BLOCKS_PER_SHARD
    lengths = np.lib.format.open_memmap(folder / LENGTHS_FILE, "w+", dtype="<u2", shape=(pairs, 2))
    blocks = np.zeros(-(-pairs // PAIRS_PER_BLOCK), BLOCK_DTYPE)
    shards = []
    for number, first in enumerate(range(0, pairs, shard_pairs)):
        count = min(shard_pairs, pairs - first)
        chosen = np.random.default_rng([seed, number]).integers(0, NUM_LENGTH_PAIRS, count, dtype=np.uint32)
        lengths[first : first + count] = known[chosen]
        rows = blocks[number * BLOCKS_PER_SHARD : (number + 1) * BLOCKS_PER_SHARD]
        _describe_blocks(rows, lengths[first : first + count], shard=number, first=first)
        shards.append(_write_shard(folder / f"train-{number:06d}.tar", rows))
    lengths.flush()
    np.save(folder / BLOCKS_FILE, blocks)
    (folder / REPORT_FILE).write_bytes(b"{}")
    (folder / "tokenizer.model").write_bytes(b"")
    (folder / INDEX_FILE).write_bytes(_index(folder, shards).to_json())


def _length_pairs(seed: int) -> NDArray[np.uint16]:
    generator = np.random.default_rng(seed)
    source = generator.lognormal(np.log(MEDIAN_PIECES), SIGMA, NUM_LENGTH_PAIRS)
    target = source * generator.lognormal(0.05, 0.25, NUM_LENGTH_PAIRS)
    return np.clip(np.stack([source, target], axis=1), 1, MAX_PIECES).astype(np.uint16)


def _describe_blocks(rows: NDArray[np.void], lengths: NDArray[np.uint16], *, shard: int, first: int) -> None:
    """Fill a shard's rows of the block table."""
    firsts = np.arange(0, len(lengths), PAIRS_PER_BLOCK)
    tokens = np.add.reduceat(lengths, firsts, axis=0, dtype=np.uint64)
    longest = np.maximum.reduceat(lengths, firsts, axis=0)
    rows["shard"] = shard
    rows["pairs"] = np.diff(firsts, append=len(lengths))
    rows["first_pair"] = first + firsts
    rows["source_tokens"], rows["target_tokens"] = tokens.T
    rows["longest_source"], rows["longest_target"] = longest.T
    rows["bytes"] = 4096 + 2 * tokens.sum(axis=1) + 4 * rows["pairs"]
    rows["offset"] = np.cumsum(rows["bytes"]) - rows["bytes"]


def _write_shard(path: Path, rows: NDArray[np.void]) -> ShardEntry:
    size = int(rows["bytes"].sum())
    path.touch()
    os.truncate(path, size)
    return ShardEntry(
        file=path.name,
        bytes=size,
        sha256=NO_HASH,
        pairs=int(rows["pairs"].sum()),
        blocks=len(rows),
        source_tokens=int(rows["source_tokens"].sum()),
        target_tokens=int(rows["target_tokens"].sum()),
    )


def _index(folder: Path, shards: list[ShardEntry]) -> DatasetIndex:
    model = describe_file(folder / "tokenizer.model")
    table = folder / LENGTHS_FILE
    return DatasetIndex(
        version=VERSION,
        source_language="en",
        target_language="de",
        pairs=sum(s.pairs for s in shards),
        blocks=sum(s.blocks for s in shards),
        source_tokens=sum(s.source_tokens for s in shards),
        target_tokens=sum(s.target_tokens for s in shards),
        token_dtype="uint16",
        dropped={},
        source_equals_target=0,
        shards=shards,
        length_table=_length_entry(table),
        block_table=describe_file(folder / BLOCKS_FILE),
        tokenizer=TokenizerEntry(
            files=[model],
            fingerprint=fingerprint_of({model.file: model.sha256}),
            source_vocab_size=VOCAB_SIZE,
            target_vocab_size=VOCAB_SIZE,
        ),
        held_out={},
        report=describe_file(folder / REPORT_FILE),
        target_tag=None,
        recipe={},
        made_with={},
    )


def _length_entry(table: Path) -> FileEntry:
    """The index entry of the length table, with its hash only if opening verifies it."""
    if table.stat().st_size <= MAX_HASHED_LENGTHS:
        return describe_file(table)
    return FileEntry(file=table.name, bytes=table.stat().st_size, sha256=NO_HASH)
