"""The plan of a dataset's stream: units, lanes, windows and micro-batches, computed when asked for."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from configs import StreamSection
from data_pipeline.planner import Deal, Units, choose_units, cut_windows, deal, expand, lane_order
from data_pipeline.windows import Budget, WindowPlan, plan_window

Integers = NDArray[np.int64]

ROWS_AT_ONCE = 1 << 20


@dataclass(frozen=True, slots=True)
class LanePass:
    """A lane's share of a pass: its units in order, cut into windows."""

    units: Integers
    cuts: Integers
    """(windows + 1,)."""

    @property
    def num_windows(self) -> int:
        """Windows of the lane in this pass; a lane without units has none."""
        return len(self.cuts) - 1

    def window_units(self, number: int) -> Integers:
        """The units of a window."""
        return self.units[self.cuts[number] : self.cuts[number + 1]]


class StreamPlan:
    """Which pairs stand in which micro-batch: a function of (lengths, section, seed). It remembers one pass.

    Args:
        lengths: (pairs, 2): raw pieces.
        blocks: bounds of the blocks, (blocks + 1,).
        shards: bounds of the shards, (shards + 1,).
        section: budgets, K and the window.
        seed: the run's seed.
        dataset: number of the dataset in the mixture.
    """

    def __init__(
        self,
        lengths: NDArray[np.uint16],
        blocks: Integers,
        shards: Integers,
        section: StreamSection,
        *,
        seed: int,
        dataset: int = 0,
    ) -> None:
        self.lengths = lengths
        self.budget = Budget.of(section)
        self.num_lanes = section.micro_batches
        self._window_pairs = section.window_pairs
        self._seed = seed
        self._dataset = dataset
        self._units: Units = choose_units(
            lengths, blocks, shards, num_lanes=self.num_lanes, window_pairs=self._window_pairs
        )
        self._deal = lru_cache(maxsize=1)(self._compute_deal)

    @property
    def num_units(self) -> int:
        """Units that are dealt."""
        return len(self._units.tokens)

    def _compute_deal(self, pass_: int) -> Deal:
        return deal(self._units.tokens, self.num_lanes, seed=self._seed, dataset=self._dataset, pass_=pass_)

    def lane(self, pass_: int, lane: int) -> LanePass:
        """A lane's share of a pass."""
        dealt = self._deal(pass_).of_lane(lane)
        units = lane_order(dealt, seed=self._seed, dataset=self._dataset, pass_=pass_, lane=lane)
        counts = self._units.bounds[units + 1] - self._units.bounds[units]
        return LanePass(units, cut_windows(counts, self._window_pairs))

    def window(self, share: LanePass, *, pass_: int, lane: int, window: int) -> tuple[Integers, WindowPlan]:
        """A window's pairs in ascending order, and its micro-batches as rows of them."""
        pairs = expand(share.window_units(window), self._units.bounds)
        place = (self._dataset, pass_, lane, window)
        return pairs, plan_window(self.lengths[pairs], self.budget, seed=self._seed, place=place)

    def micro_batches(self, pass_: int, lane: int) -> Iterator[Integers]:
        """The pair ids of each micro-batch of a lane in a pass, in order."""
        share = self.lane(pass_, lane)
        for number in range(share.num_windows):
            pairs, plan = self.window(share, pass_=pass_, lane=lane, window=number)
            for micro_batch in range(len(plan)):
                yield pairs[plan.micro_batch(micro_batch)]

    def oversized(self) -> tuple[int, int | None]:
        """Pairs that no micro-batch can hold: how many, and the id of the first."""
        count, first = 0, None
        for start in range(0, len(self.lengths), ROWS_AT_ONCE):
            rows = np.flatnonzero(~self.budget.holds(self.lengths[start : start + ROWS_AT_ONCE]))
            if first is None and len(rows):
                first = start + int(rows[0])
            count += len(rows)
        return count, first
