"""The tokens of a window's pairs: from verified blocks; corrupt ones are skipped and counted up to a limit."""

import itertools
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

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
"""Blocks of a remote dataset that are fetched at once."""


class BlockCache:
    """The blocks of a dataset that were read last, shared by a rank's lanes. Not for several threads at a time.

    Where pairs are dealt, every lane's window draws on every block, so the lanes read the same ones.
    """

    def __init__(self, dataset: Dataset, *, max_bytes: int = CACHE_BYTES, background: Background | None = None) -> None:
        """See the class.

        Args:
            dataset: whose blocks.
            max_bytes: bound of `num_bytes`.
            background: reads a few blocks at once, for a dataset where each waits for an answer from afar.
        """
        self.dataset = dataset
        self.first_pairs: Integers = dataset.blocks["first_pair"].astype(np.int64)
        """(blocks,): the first pair of each block."""
        self._max_bytes = max_bytes
        self._background = background
        self._blocks: OrderedDict[int, Block] = OrderedDict()
        self._broken: dict[int, DataError] = {}
        self.num_bytes = 0
        """Memory that the blocks take; at most `max_bytes`, or one block."""

    def read(self, numbers: Iterable[int]) -> Iterator[Block | DataError]:
        """Blocks in turn, verified when they were read, or what is wrong with them.

        A corrupt block is not tried again.
        """
        begun: deque[tuple[int, Callable[[], Block]]] = deque()
        for number in numbers:
            begun.append((number, self._begin(number)))
            if len(begun) > (BLOCKS_AT_ONCE if self._background else 0):
                yield self._finish(*begun.popleft())
        while begun:
            yield self._finish(*begun.popleft())

    def _begin(self, number: int) -> Callable[[], Block]:
        if number in self._blocks or number in self._broken or self._background is None:
            return partial(self._get, number)
        return self._background.begin(partial(self.dataset.read_block, number))

    def _get(self, number: int) -> Block:
        if number in self._broken:
            raise self._broken[number]
        return self._blocks[number] if number in self._blocks else self.dataset.read_block(number)

    def _finish(self, number: int, wait: Callable[[], Block]) -> Block | DataError:
        """Keep a block, and let go of those that were not used for longest."""
        try:
            block = wait()
        except DataError as error:
            self._broken[number] = error
            return error
        if number not in self._blocks:
            self.num_bytes += block.num_bytes
        self._blocks[number] = block
        self._blocks.move_to_end(number)
        while self.num_bytes > self._max_bytes and len(self._blocks) > 1:
            self.num_bytes -= self._blocks.popitem(last=False)[1].num_bytes
        return block


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


def read_pairs(cache: BlockCache, pairs: Integers, max_corrupt: int = 0) -> Tokens:
    """The tokens of pairs, each block read once.

    Args:
        cache: the dataset's blocks.
        pairs: (pairs,), in ascending order.
        max_corrupt: with more corrupt blocks than this the rest is not read, and no pair is there.
    """
    numbers = np.searchsorted(cache.first_pairs, pairs, side="right") - 1
    parts: tuple[list[Pieces], list[Pieces]] = ([], [])
    is_there = np.ones(len(pairs), dtype=bool)
    corrupt: dict[int, str] = {}
    cuts = [*np.flatnonzero(np.diff(numbers, prepend=-1)).tolist(), len(pairs)]
    needed = numbers[cuts[:-1]].tolist()
    for (first, last), number, block in zip(itertools.pairwise(cuts), needed, cache.read(needed), strict=True):
        if isinstance(block, DataError):
            corrupt[number] = str(block)
            is_there[first:last] = False
            if len(corrupt) > max_corrupt:
                is_there[:] = False
                break
            continue
        wanted = np.zeros(len(block.lengths), dtype=bool)
        wanted[pairs[first:last] - cache.first_pairs[number]] = True
        for side, pieces in enumerate((block.source, block.target)):
            parts[side].append(pieces[np.repeat(wanted, block.lengths[:, side])])
    lengths = cache.dataset.lengths[pairs].astype(np.int64) * is_there[:, None]
    source, target = (
        Ragged(
            np.concatenate(parts[side]) if parts[side] else np.empty(0, dtype=np.uint16),
            np.cumsum(lengths[:, side]) - lengths[:, side],
            lengths[:, side],
        )
        for side in (0, 1)
    )
    return Tokens(source, target, is_there, corrupt)
