"""The order of the stream: which pairs are in which micro-batch, as pure functions of integers.

A pass over a dataset deals *units* (shards, blocks or pairs) to K lanes. A lane goes through its units in
windows; a window's pairs are shuffled, bucketed by length and cut into micro-batches
(`data_pipeline.order.windows`). Nothing here depends on ranks or reads a file, and lanes are planned independently.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from data_pipeline.order.randomness import Purpose, permutation, random_bits

Integers = NDArray[np.int64]

UNITS_A_LANE = 8
"""The unit is the largest of which each lane gets at least this many."""
SHARDS_A_WINDOW = 8
"""Shards are the unit only if a window holds this many."""


@dataclass(frozen=True, slots=True)
class Units:
    """A dataset's pairs, divided into consecutive units."""

    bounds: Integers
    """(units + 1,): unit u holds the pairs from bounds[u] up to bounds[u + 1]."""
    tokens: Integers
    """(units,): pieces of both sides, by which lanes are balanced."""

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def largest(self) -> int:
        """Number of pairs of the largest unit."""
        return int(np.diff(self.bounds).max())

    @classmethod
    def of_pairs(cls, lengths: NDArray[np.uint16]) -> "Units":
        """Each pair a unit."""
        return cls(np.arange(len(lengths) + 1), lengths.sum(axis=1, dtype=np.int64))

    def merged(self, firsts: Integers) -> "Units":
        """Merge units into larger ones, which begin at the units `firsts`, the first being 0."""
        return Units(np.append(self.bounds[firsts], self.bounds[-1]), np.add.reduceat(self.tokens, firsts))


@dataclass(frozen=True, slots=True)
class Deal:
    """The units of every lane, in the lane's order."""

    units: Integers
    """Numbers of units, lane after lane."""
    offsets: Integers
    """(K + 1,): lane j has units[offsets[j] : offsets[j + 1]], before its own shuffle."""

    def of_lane(self, lane: int) -> Integers:
        """The units of a lane."""
        return self.units[self.offsets[lane] : self.offsets[lane + 1]]


def choose_units(
    blocks: Units, first_blocks: Integers, lengths: NDArray[np.uint16], *, num_lanes: int, window_pairs: int
) -> Units:
    """The largest unit that leaves each lane at least eight, and that a window holds: shards, blocks or pairs.

    A unit larger than a window would exceed the window's memory bound, so the next smaller kind is used. The same holds
    if a window would hold only a few shards, as all its pairs would come from few places in the dataset. Lengths are
    only read if the unit is a pair, that is if there are fewer than eight blocks per lane, or blocks are larger than a
    window.

    Args:
        blocks: the dataset's.
        first_blocks: (shards,): number of the first block of each shard.
        lengths: (pairs, 2): raw pieces.
        num_lanes: K.
        window_pairs: most pairs of a window.
    """
    for units, in_window in ((blocks.merged(first_blocks), SHARDS_A_WINDOW), (blocks, 1)):
        if len(units) >= UNITS_A_LANE * num_lanes and units.largest * in_window <= window_pairs:
            return units
    return Units.of_pairs(lengths)


def deal(tokens: Integers, num_lanes: int, *, seed: int, dataset: int, pass_: int) -> Deal:
    """Deal units to lanes at random, balanced by tokens.

    Units are sorted by tokens, equal ones at random, and dealt in rows of one per lane: one row to the lanes in random
    order, the next row in reverse, so that the lane with the heaviest unit of one row gets the lightest of the next.
    """
    assert num_lanes <= np.iinfo(np.uint16).max + 1
    count = len(tokens)
    shuffled = permutation(count, seed, Purpose.DEAL_UNITS, dataset, pass_, num_lanes)
    heaviest_first = shuffled[np.argsort(-tokens[shuffled], kind="stable")]
    num_rows = -(-count // num_lanes)
    row_pairs = -(-num_rows // 2)
    bits = random_bits(row_pairs * num_lanes, seed, Purpose.DEAL_LANES, dataset, pass_, num_lanes)
    there = np.argsort(bits.reshape(row_pairs, num_lanes), axis=1, kind="stable")
    lanes = np.stack([there, there[:, ::-1]], axis=1).reshape(-1)[:count].astype(np.uint16)  # sorted by radix
    offsets = np.concatenate([[0], np.cumsum(np.bincount(lanes, minlength=num_lanes))])
    return Deal(heaviest_first[np.argsort(lanes, kind="stable")], offsets)


def lane_order(units: Integers, *, seed: int, dataset: int, pass_: int, lane: int) -> Integers:
    """A lane's units in random order."""
    return units[permutation(len(units), seed, Purpose.LANE_ORDER, dataset, pass_, lane)]


def cut_windows(pairs: Integers, window_pairs: int) -> Integers:
    """Cut a lane's units into windows of about equal size.

    A window holds at most `window_pairs` pairs, or a single unit. Windows have about equal sizes, because a small last
    one would have more padding.

    Args:
        pairs: (units,): pairs of each unit, in the lane's order.
        window_pairs: most pairs of a window.

    Returns:
        (windows + 1,): window w holds the units from [w] up to [w + 1].
    """
    if len(pairs) == 0:
        return np.zeros(1, dtype=np.int64)
    ends = np.cumsum(pairs)
    total = int(ends[-1])
    even = -(-total // -(-total // window_pairs)) + int(pairs.max()) - 1
    limit = min(even, window_pairs)
    cuts, start, done = [0], 0, 0
    while start < len(pairs):
        start = max(start + 1, int(np.searchsorted(ends, done + limit, side="right")))
        done = int(ends[start - 1])
        cuts.append(start)
    return np.array(cuts, dtype=np.int64)


def expand(units: Integers, bounds: Integers) -> Integers:
    """The pairs of units, in ascending order."""
    units = np.sort(units)
    counts = bounds[units + 1] - bounds[units]
    starts = np.repeat(bounds[units] - np.concatenate([[0], np.cumsum(counts)[:-1]]), counts)
    return starts + np.arange(int(counts.sum()))
