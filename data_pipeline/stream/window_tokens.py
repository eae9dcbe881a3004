"""The tokens of a window's pairs, from verified blocks."""

import itertools
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from data_pipeline.prepared.dataset import Block, Dataset
from data_pipeline.stream.batch import Ragged
from data_pipeline.stream.prefetch import Background

Integers = NDArray[np.int64]
Pieces = NDArray[np.unsignedinteger]

CACHE_BYTES = 64 << 20
BLOCKS_AT_ONCE = 8
"""Of a remote dataset."""


class BlockReader:
    """Reads a dataset's blocks. Where pairs are dealt every lane's window draws on every block, so the ones that were
    read last are kept for a rank's other lanes."""

    def __init__(self, dataset: Dataset, *, is_shared: bool = False, background: Background | None = None) -> None:
        """See the class.

        Args:
            dataset: whose blocks.
            is_shared: whether several lanes read a block, else it is used once.
            background: reads blocks at once, for a dataset where each waits for an answer from afar.
        """
        self.dataset = dataset
        self.first_pairs: Integers = dataset.blocks["first_pair"].astype(np.int64)
        """(blocks,): the first pair of each block."""
        self._background = background
        num_kept = CACHE_BYTES // int(dataset.blocks["bytes"].max()) if is_shared else 1
        self._read = lru_cache(max(1, num_kept))(dataset.read_block)

    def read(self, numbers: Sequence[int]) -> Iterator[Block]:
        """Blocks in turn, verified when they were read.

        Raises:
            DataError: during iteration, in place of a block that is corrupt or cannot be read.
        """
        if self._background is None:
            return map(self._read, numbers)
        begun = [self._background.begin(partial(self._read, number)) for number in numbers]
        return (wait() for wait in begun)


def read_pairs(blocks: BlockReader, pairs: Integers) -> tuple[Ragged, Ragged]:
    """The tokens of source and target of pairs (pairs,) in ascending order, each block read once.

    Raises:
        DataError: a block is corrupt or cannot be read.
    """
    numbers = np.searchsorted(blocks.first_pairs, pairs, side="right") - 1
    parts: tuple[list[Pieces], list[Pieces]] = ([], [])
    cuts = [*np.flatnonzero(np.diff(numbers, prepend=-1)).tolist(), len(pairs)]
    needed = numbers[cuts[:-1]].tolist()
    for (first, last), number, block in zip(itertools.pairwise(cuts), needed, blocks.read(needed), strict=True):
        wanted = np.zeros(len(block.lengths), dtype=bool)
        wanted[pairs[first:last] - blocks.first_pairs[number]] = True
        for side, pieces in enumerate((block.source, block.target)):
            parts[side].append(pieces[np.repeat(wanted, block.lengths[:, side])])
    lengths = blocks.dataset.lengths[pairs].astype(np.int64)
    starts = np.cumsum(lengths, axis=0) - lengths
    source, target = (
        Ragged(
            np.concatenate(parts[side]) if parts[side] else np.empty(0, dtype=np.uint16),
            starts[:, side],
            lengths[:, side],
        )
        for side in (0, 1)
    )
    return source, target
