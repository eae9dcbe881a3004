"""The plan of a dataset's stream: which pairs are in which micro-batch, as pure functions of integers.

A pass over a dataset deals *units* (blocks or pairs) to K lanes. A lane goes through its units in
windows; a window's pairs are shuffled, bucketed by length and cut into micro-batches
(`data_pipeline.order.windows`). Nothing here depends on ranks or reads a file, and lanes are planned independently.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from threading import Lock
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from configs import StreamSection
from data_pipeline.order.randomness import Purpose, permutation, random_bits
from data_pipeline.order.windows import Budget, Integers, WindowPlan, plan_window

UNITS_A_LANE = 8
"""Blocks are the unit if each lane gets at least this many."""
PAIRS_AT_ONCE = 1 << 20
SAMPLED_PAIRS = 32_768
SAMPLED_WINDOWS = 16
"""Number of windows planned at most to estimate the pairs of a mixture's micro-batches."""
FULL_MICRO_BATCHES = 16
"""What a lane's part of a pass over a small dataset of a mixture should fill: the last one is not full."""


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


def choose_units(blocks: Units, lengths: NDArray[np.uint16], *, num_lanes: int, window_pairs: int) -> Units:
    """Blocks, if each lane gets at least eight and a window holds one; else pairs.

    A block larger than a window would exceed the window's memory bound. Lengths are only read if the unit is a pair.

    Args:
        blocks: the dataset's.
        lengths: (pairs, 2): raw pieces.
        num_lanes: K.
        window_pairs: most pairs of a window.
    """
    is_enough = len(blocks) >= UNITS_A_LANE * num_lanes and blocks.largest <= window_pairs
    return blocks if is_enough else Units.of_pairs(lengths)


def deal(tokens: Integers, num_lanes: int, *, seed: int, dataset: int, pass_: int) -> list[Integers]:
    """The units of each lane, dealt at random and balanced by tokens.

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
    ends = np.cumsum(np.bincount(lanes, minlength=num_lanes))
    return np.split(heaviest_first[np.argsort(lanes, kind="stable")], ends[:-1])


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


class LanePass(NamedTuple):
    """A lane's part of a pass: its units in order, divided into windows."""

    number: int
    """Of the pass."""
    units: Integers
    cuts: Integers
    """(windows + 1,)."""

    @property
    def num_windows(self) -> int:
        """Number of the lane's windows in this pass; 0 for a lane without units."""
        return len(self.cuts) - 1


class StreamPlan:
    """Which pairs are in which micro-batch: a function of (lengths, section, seed).

    Lengths are read when a window is planned; opening a plan and dealing only need the table of blocks (or all lengths,
    if pairs are dealt). The deals of the last two passes are cached. Methods are thread-safe.

    In a mixture a dataset may have too few pairs for K lanes to fill their micro-batches. Then a pass deals several
    copies of each pair: `num_copies`.

    Args:
        lengths: (pairs, 2): raw pieces.
        blocks: (blocks,), of `index.BLOCK_DTYPE`.
        section: budgets, K and the window.
        seed: the run's seed.
        dataset: number of the dataset in the mixture.
        lane_pairs: pairs of an epoch for each lane, over all datasets of the mixture; None if this is the only dataset:
            then the lanes' micro-batches can be balanced in each update.
    """

    def __init__(
        self,
        lengths: NDArray[np.uint16],
        blocks: NDArray[np.void],
        section: StreamSection,
        *,
        seed: int,
        dataset: int = 0,
        lane_pairs: int | None = None,
    ) -> None:
        self.lengths = lengths
        self.budget = Budget.of(section)
        self.num_lanes = section.micro_batches
        self.num_copies = 1
        bounds = np.append(blocks["first_pair"].astype(np.int64), len(lengths))
        self._blocks = Units(bounds, (blocks["source_tokens"] + blocks["target_tokens"]).astype(np.int64))
        self._longest = np.stack([blocks["longest_source"], blocks["longest_target"]], axis=1)
        self._window_pairs = section.window_pairs
        self._seed = seed
        self._dataset = dataset
        self._is_alone = lane_pairs is None
        if lane_pairs is not None:
            # A lane takes at least one micro-batch per epoch, however few pairs.
            self.budget = self.budget._replace(max_rows=min(self.budget.max_rows, lane_pairs))
            self.num_copies = self._copies(lane_pairs)
        self._units = choose_units(self._blocks, lengths, num_lanes=self.num_lanes, window_pairs=self._window_pairs)
        if self.num_copies > 1:
            self._units = Units.of_pairs(np.tile(lengths, (self.num_copies, 1)))
        self._deal = lru_cache(maxsize=2)(self._compute_deal)
        self._deal_lock = Lock()
        self.usual_pairs = Fraction(1) if self._is_alone else self._mean_pairs()
        """Mean number of pairs of a micro-batch in a mixture, from a sample."""

    def _copies(self, lane_pairs: int) -> int:
        """How many times a pass deals each pair, that a lane's part of it fills its micro-batches."""
        sample = self.lengths[:SAMPLED_PAIRS]
        fitting = sample[self.budget.holds(sample)]
        if len(fitting) == 0:
            return 1
        wanted = min(FULL_MICRO_BATCHES * self.budget.usual_rows(fitting), lane_pairs, self._window_pairs)
        return max(1, round(wanted * self.num_lanes * len(sample) / len(fitting) / len(self.lengths)))

    def _mean_pairs(self) -> Fraction:
        """Mean pairs of the micro-batches of a few windows."""
        num_pairs = num_micro_batches = 0
        for lane in range(min(self.num_lanes, SAMPLED_WINDOWS)):
            lane_pass = self.lane(0, lane)
            if num_pairs >= SAMPLED_PAIRS or lane_pass.num_windows == 0:
                break
            some = self.pairs(lane_pass, 0)[0][:SAMPLED_PAIRS]
            planned = self.cut(self.lengths[some], pass_=0, lane=lane, window=0, before=0)
            num_pairs += len(planned.rows)
            num_micro_batches += len(planned)
        return Fraction(max(num_pairs, 1), max(num_micro_batches, 1))

    @property
    def deals_pairs(self) -> bool:
        """Whether single pairs are dealt, so that every lane reads from every block."""
        return len(self._units) >= len(self.lengths)

    def _compute_deal(self, pass_: int) -> list[Integers]:
        return deal(self._units.tokens, self.num_lanes, seed=self._seed, dataset=self._dataset, pass_=pass_)

    def lane(self, pass_: int, lane: int) -> LanePass:
        """A lane's part of a pass."""
        with self._deal_lock:  # otherwise two threads would both sort all units
            dealt = self._deal(pass_)[lane]
        units = lane_order(dealt, seed=self._seed, dataset=self._dataset, pass_=pass_, lane=lane)
        counts = self._units.bounds[units + 1] - self._units.bounds[units]
        return LanePass(pass_, units, cut_windows(counts, self._window_pairs))

    def pairs(self, lane_pass: LanePass, window: int) -> tuple[Integers, Integers]:
        """A window's pairs in ascending order, and the number of times that each was dealt before."""
        first, last = lane_pass.cuts[window : window + 2]
        dealt = expand(lane_pass.units[first:last], self._units.bounds)
        copies, pairs = np.divmod(dealt, len(self.lengths))
        order = np.argsort(pairs, kind="stable")
        return pairs[order], lane_pass.number * self.num_copies + copies[order]

    def cut(self, lengths: NDArray[np.uint16], *, pass_: int, lane: int, window: int, before: int) -> WindowPlan:
        """Cut a window into micro-batches.

        Args:
            lengths: of its pairs, as augmentation has made them.
            pass_, lane, window: which.
            before: the lane's micro-batches in this pass before the window.
        """
        place = (self._dataset, pass_, lane, window)
        return plan_window(
            lengths, self.budget, seed=self._seed, place=place, before=before if self._is_alone else None
        )

    def micro_batches(self, pass_: int, lane: int) -> Iterator[Integers]:
        """The pair ids of each micro-batch of a lane's pass, in order."""
        lane_pass, before = self.lane(pass_, lane), 0
        for number in range(lane_pass.num_windows):
            pairs, _ = self.pairs(lane_pass, number)
            plan = self.cut(self.lengths[pairs], pass_=pass_, lane=lane, window=number, before=before)
            before += len(plan)
            for micro_batch in range(len(plan)):
                yield pairs[plan.micro_batch(micro_batch)]

    def oversized(self) -> tuple[int, int | None]:
        """The number of pairs that no micro-batch can hold, and the id of the first.

        Only blocks whose longest pair is too long are read.
        """
        blocks = np.flatnonzero(~self.budget.holds(self._longest))
        count, first = 0, None
        step = max(1, PAIRS_AT_ONCE // self._blocks.largest)
        for start in range(0, len(blocks), step):
            pairs = expand(blocks[start : start + step], self._blocks.bounds)
            too_long = pairs[~self.budget.holds(self.lengths[pairs])]
            if first is None and len(too_long):
                first = int(too_long[0])
            count += len(too_long)
        return count, first
