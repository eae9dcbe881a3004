"""A lane: a window's tokens in memory, its micro-batches one after the other."""

import itertools
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from data_pipeline.batch import MicroBatch, collate
from data_pipeline.blocks import Block
from data_pipeline.dataset import Dataset
from data_pipeline.errors import DataError
from data_pipeline.state import LaneCursor
from data_pipeline.stream_plan import StreamPlan
from data_pipeline.windows import WindowPlan

Integers = NDArray[np.int64]
Pieces = NDArray[np.unsignedinteger]

CACHE_BYTES = 64 << 20


class BlockCache:
    """The blocks that were read last, shared by a rank's lanes.

    Where pairs are dealt, every lane's window draws on every block, so the lanes read the same ones.
    """

    def __init__(self, dataset: Dataset, max_bytes: int = CACHE_BYTES) -> None:
        self._dataset = dataset
        self._max_bytes = max_bytes
        self._blocks: OrderedDict[int, Block] = OrderedDict()
        self.num_bytes = 0
        """Memory that the blocks take; at most `max_bytes`, or one block."""

    def get(self, number: int) -> Block:
        """A block, verified when it was read.

        Raises:
            DataError: as `Dataset.read_block`.
        """
        if number in self._blocks:
            self._blocks.move_to_end(number)
            return self._blocks[number]
        block = self._dataset.read_block(number)
        self._blocks[number] = block
        self.num_bytes += block.num_bytes
        while self.num_bytes > self._max_bytes and len(self._blocks) > 1:
            self.num_bytes -= self._blocks.popitem(last=False)[1].num_bytes
        return block


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a window's pairs."""

    pieces: Pieces
    ends: Integers
    """(pairs + 1,): row r is pieces[ends[r] : ends[r + 1]]."""

    def rows(self, numbers: Integers) -> list[Pieces]:
        """The pieces of some rows."""
        return [
            self.pieces[first:last]
            for first, last in zip(self.ends[numbers].tolist(), self.ends[numbers + 1].tolist(), strict=True)
        ]


def read_pairs(dataset: Dataset, cache: BlockCache, pairs: Integers) -> tuple[Side, Side]:
    """The tokens of pairs, each block read once.

    Args:
        dataset: where they stand.
        cache: its blocks.
        pairs: (pairs,), in ascending order.

    Raises:
        DataError: a block is broken.
    """
    firsts = dataset.blocks["first_pair"].astype(np.int64)
    numbers = np.searchsorted(firsts, pairs, side="right") - 1
    parts: tuple[list[Pieces], list[Pieces]] = ([], [])
    cuts = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(pairs)]
    for first, last in itertools.pairwise(cuts):
        block = cache.get(int(numbers[first]))
        wanted = np.zeros(len(block.lengths), dtype=bool)
        wanted[pairs[first:last] - firsts[numbers[first]]] = True
        for side, pieces in enumerate((block.source, block.target)):
            parts[side].append(pieces[np.repeat(wanted, block.lengths[:, side])])
    lengths = dataset.lengths[pairs].astype(np.int64)
    sides = [Side(np.concatenate(parts[side]), np.concatenate([[0], np.cumsum(lengths[:, side])])) for side in (0, 1)]
    return sides[0], sides[1]


@dataclass(frozen=True, slots=True)
class _Window:
    pairs: Integers
    plan: WindowPlan
    source: Side
    target: Side


class Lane:
    """Hands out a lane's micro-batches of one epoch from a cursor on."""

    def __init__(self, dataset: Dataset, cache: BlockCache, plan: StreamPlan, lane: int, cursor: LaneCursor) -> None:
        self._dataset = dataset
        self._cache = cache
        self._plan = plan
        self._lane = lane
        self._share = plan.lane(cursor.pass_, lane)
        self._window: _Window | None = None
        self.cursor = cursor
        """The micro-batch that comes next."""

    def next(self) -> MicroBatch | None:
        """The next micro-batch, or None where the lane is dry for this epoch.

        Raises:
            DataError: a block is broken, or the cursor points at what is not there.
        """
        while self.cursor.window < self._share.num_windows:
            if self._window is None:
                self._window = self._read(self.cursor.window)
            window, position = self._window, self.cursor.position
            if position < len(window.plan):
                self._move(self.cursor.window, position + 1, len(window.plan))
                return self._collate(window, position)
            if position > len(window.plan):
                raise DataError(f"lane {self._lane}: position {position} of {len(window.plan)} micro-batches")
            self._move(self.cursor.window, position, position)
        return None

    def _move(self, window: int, position: int, length: int) -> None:
        """Set the cursor, on the next window where this one is used up, whose memory is let go of."""
        if position == length:
            window, position, self._window = window + 1, 0, None
        self.cursor = LaneCursor(self.cursor.pass_, window, position)

    def _read(self, number: int) -> _Window:
        pairs, plan = self._plan.window(self._share, pass_=self.cursor.pass_, lane=self._lane, window=number)
        return _Window(pairs, plan, *read_pairs(self._dataset, self._cache, pairs))

    def _collate(self, window: _Window, position: int) -> MicroBatch:
        rows = window.plan.micro_batch(position)
        multiple = self._plan.budget.length_multiple
        return collate(self._lane, window.pairs[rows], window.source.rows(rows), window.target.rows(rows), multiple)
