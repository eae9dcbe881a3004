"""The tokens of a window's pairs: from verified blocks; corrupt ones are skipped and counted up to a limit."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from data_pipeline.prepared.dataset import Block, Dataset
from data_pipeline.prepared.index import DataError
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
        self._read = lru_cache(max(1, num_kept))(self._try)

    def read(self, numbers: Sequence[int]) -> Iterator[Block | DataError]:
        """Blocks in turn, verified when they were read, or what is wrong with them."""
        if self._background is None:
            return map(self._read, numbers)
        begun = [self._background.begin(partial(self._read, number)) for number in numbers]
        return (wait() for wait in begun)

    def _try(self, number: int) -> Block | DataError:
        try:
            return self.dataset.read_block(number)
        except DataError as error:
            return error


class CorruptBlocks:
    """Corrupt blocks, which are skipped and counted up to a limit."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.messages: dict[tuple[int, int], str] = {}
        """What is wrong with each, by numbers of dataset and block."""

    def add(self, messages: Mapping[tuple[int, int], str]) -> list[str]:
        """Count blocks, each once, and return the messages of the new ones.

        Raises:
            DataError: there is one more than the limit.
        """
        new = {block: message for block, message in messages.items() if block not in self.messages}
        for block, message in new.items():
            if len(self.messages) == self.limit:
                before = f"; {self.limit} blocks were skipped before, as many as stream.max_corrupt_blocks={self.limit}"
                raise DataError(message + before * (self.limit > 0))
            self.messages[block] = message
        return list(new.values())


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of a window's pairs, those of corrupt blocks missing."""

    source: Ragged
    target: Ragged
    is_there: NDArray[np.bool_]
    """(pairs,)."""
    corrupt: dict[int, str]
    """What is wrong, by number of the block."""


def read_pairs(blocks: BlockReader, pairs: Integers, max_corrupt: int = 0) -> Tokens:
    """The tokens of pairs, each block read once.

    Args:
        blocks: the dataset's.
        pairs: (pairs,), in ascending order.
        max_corrupt: with more corrupt blocks than this the rest is not read, and no pair is there.
    """
    numbers = np.searchsorted(blocks.first_pairs, pairs, side="right") - 1
    parts: tuple[list[Pieces], list[Pieces]] = ([], [])
    is_there = np.ones(len(pairs), dtype=bool)
    corrupt: dict[int, str] = {}
    cuts = [*np.flatnonzero(np.diff(numbers, prepend=-1)).tolist(), len(pairs)]
    needed = numbers[cuts[:-1]].tolist()
    for (first, last), number, block in zip(itertools.pairwise(cuts), needed, blocks.read(needed), strict=True):
        if isinstance(block, DataError):
            corrupt[number] = str(block)
            is_there[first:last] = False
            if len(corrupt) > max_corrupt:
                is_there[:] = False
                break
            continue
        wanted = np.zeros(len(block.lengths), dtype=bool)
        wanted[pairs[first:last] - blocks.first_pairs[number]] = True
        for side, pieces in enumerate((block.source, block.target)):
            parts[side].append(pieces[np.repeat(wanted, block.lengths[:, side])])
    lengths = blocks.dataset.lengths[pairs].astype(np.int64) * is_there[:, None]
    source, target = (
        Ragged(
            np.concatenate(parts[side]) if parts[side] else np.empty(0, dtype=np.uint16),
            np.cumsum(lengths[:, side]) - lengths[:, side],
            lengths[:, side],
        )
        for side in (0, 1)
    )
    return Tokens(source, target, is_there, corrupt)
