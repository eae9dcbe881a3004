"""Datasets of which only lengths and the table of blocks exist: all that a plan needs."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from data_pipeline.prepared.index import BLOCK_DTYPE

Lengths = NDArray[np.uint16]
BlockTable = NDArray[np.void]


def random_lengths(pairs: int, seed: int, longest: int = 60) -> Lengths:
    """Sides whose lengths go together, as those of translations do."""
    generator = np.random.default_rng(seed)
    source = np.clip(generator.lognormal(2.3, 0.6, pairs), 1, longest)
    target = np.clip(source * generator.lognormal(0.05, 0.25, pairs), 1, longest)
    return np.stack([source, target], axis=1).astype(np.uint16)


def block_table(lengths: Lengths, block_sizes: Sequence[int], shard_sizes: Sequence[int]) -> BlockTable:
    """The table of blocks of so many pairs, in shards of so many blocks."""
    table = np.zeros(len(block_sizes), BLOCK_DTYPE)
    table["shard"] = np.repeat(np.arange(len(shard_sizes)), shard_sizes)
    table["pairs"] = block_sizes
    table["first_pair"] = np.cumsum([0, *block_sizes[:-1]])
    ends = np.cumsum(block_sizes)
    assert ends[-1] == len(lengths)
    for row, end in zip(table, ends.tolist(), strict=True):
        inside = lengths[end - int(row["pairs"]) : end]
        row["source_tokens"], row["target_tokens"] = inside.sum(axis=0, dtype=np.int64)
        row["longest_source"], row["longest_target"] = inside.max(axis=0)
    return table


def even_table(lengths: Lengths, block: int, shard: int) -> BlockTable:
    """Blocks and shards of so many pairs; the last ones may be smaller."""
    sizes = [min(block, len(lengths) - first) for first in range(0, len(lengths), block)]
    blocks_per_shard = shard // block
    shards = [min(blocks_per_shard, len(sizes) - first) for first in range(0, len(sizes), blocks_per_shard)]
    return block_table(lengths, sizes, shards)
