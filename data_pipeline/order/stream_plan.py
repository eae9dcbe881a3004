"""The plan of a dataset's stream: units, lanes, windows and micro-batches, computed on demand."""

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from configs import StreamSection
from data_pipeline.order.planner import Deal, Units, choose_units, cut_windows, deal, expand, lane_order
from data_pipeline.order.sharing import Sharing, target_pairs
from data_pipeline.order.windows import Budget, WindowPlan, plan_window
from data_pipeline.prepared.dataset import Dataset

Integers = NDArray[np.int64]

PAIRS_AT_ONCE = 1 << 20
SAMPLED_PAIRS = 32_768
SAMPLED_WINDOWS = 16
"""Number of windows planned at most to estimate the pairs of a mixture's micro-batches."""


@dataclass(frozen=True, slots=True)
class LanePass:
    """A lane's (or group's) part of a pass: its units in order, divided into windows."""

    units: Integers
    cuts: Integers
    """(windows + 1,)."""

    @property
    def num_windows(self) -> int:
        """Number of the lane's windows in this pass; 0 for a lane without units."""
        return len(self.cuts) - 1

    def window_units(self, number: int) -> Integers:
        """The units of a window."""
        return self.units[self.cuts[number] : self.cuts[number + 1]]


class StreamPlan:
    """Which pairs are in which micro-batch: a function of (lengths, section, seed).

    In a mixture in which `sharing` forms groups of several lanes, 'lane' means such a group, and 'pass' means
    `sharing.num_passes` passes.

    Lengths are read when a window is planned; opening a plan and dealing only need the table of blocks (or all lengths,
    if pairs are dealt). The deals of the last two passes are cached. Methods are thread-safe.

    Args:
        lengths: (pairs, 2): raw pieces.
        blocks: (blocks,), of `index.BLOCK_DTYPE`.
        section: budgets, K and the window.
        seed: the run's seed.
        dataset: number of the dataset in the mixture.
        num_datasets: of the mixture.
        lane_pairs: pairs of an epoch for each lane, over all datasets of the mixture; None if this is the only dataset:
            then each lane is a group, and the lanes' micro-batches can be balanced in each update.
    """

    def __init__(
        self,
        lengths: NDArray[np.uint16],
        blocks: NDArray[np.void],
        section: StreamSection,
        *,
        seed: int,
        dataset: int = 0,
        num_datasets: int = 1,
        lane_pairs: int | None = None,
    ) -> None:
        self.lengths = lengths
        self.budget = Budget.of(section)
        bounds = np.append(blocks["first_pair"].astype(np.int64), len(lengths))
        self._blocks = Units(bounds, (blocks["source_tokens"] + blocks["target_tokens"]).astype(np.int64))
        self._longest = np.stack([blocks["longest_source"], blocks["longest_target"]], axis=1)
        self._window_pairs = section.window_pairs
        self._seed = seed
        self._dataset = dataset
        self._is_alone = lane_pairs is None
        self.sharing = Sharing(section.micro_batches, section.micro_batches, 1)
        if lane_pairs is not None:
            self._share(lane_pairs, section.micro_batches, num_datasets)
        first_blocks = np.unique(blocks["shard"], return_index=True)[1]
        self._units = choose_units(
            self._blocks, first_blocks, lengths, num_lanes=self.num_lanes, window_pairs=self._window_pairs
        )
        if self.num_lanes < section.micro_batches:  # lanes get one unit more or less of a pass, in equally many windows
            self._window_pairs = min(self._window_pairs + self._units.largest, section.window_pairs)
        self._deal = lru_cache(maxsize=2)(self._compute_deal)
        self._deal_lock = Lock()
        self.usual_pairs = Fraction(1) if self._is_alone else self._mean_pairs()
        """Mean number of pairs of a micro-batch in a mixture, from a sample."""

    @classmethod
    def of(
        cls,
        dataset: Dataset,
        section: StreamSection,
        *,
        seed: int,
        number: int = 0,
        num_datasets: int = 1,
        lane_pairs: int | None = None,
    ) -> "StreamPlan":
        """The plan of a dataset.

        Args:
            dataset: the dataset to stream.
            section: budgets, K and the window.
            seed: the run's seed.
            number: of the dataset in the mixture.
            num_datasets: see the class.
            lane_pairs: see the class.
        """
        return cls(
            dataset.lengths,
            dataset.blocks,
            section,
            seed=seed,
            dataset=number,
            num_datasets=num_datasets,
            lane_pairs=lane_pairs,
        )

    def _share(self, lane_pairs: int, num_lanes: int, num_datasets: int) -> None:
        """Decide how lanes share the dataset, and the size of its windows."""
        # A lane takes at least one micro-batch per epoch, however few pairs.
        self.budget = dataclasses.replace(self.budget, max_rows=min(self.budget.max_rows, lane_pairs))
        num_pairs, most = len(self.lengths), self._window_pairs
        sample = self.lengths[:SAMPLED_PAIRS]
        fitting = sample[self.budget.holds(sample)]
        if len(fitting) == 0:
            return
        rows = self.budget.usual_rows(fitting)
        target = target_pairs(num_pairs=num_pairs, rows=rows, lane_pairs=lane_pairs, window_pairs=most)
        target = min(target * len(sample) // len(fitting), most)  # pairs that no micro-batch can hold fill no window
        self.sharing = Sharing.of(
            num_pairs=num_pairs,
            target=target,
            window_pairs=most,
            num_lanes=num_lanes,
            dataset=self._dataset,
            num_datasets=num_datasets,
        )
        of_group = -(-num_pairs // self.sharing.num_groups)
        if self.sharing.num_groups < num_lanes:
            self._window_pairs = min(most, -(-of_group // max(1, round(of_group / target))))

    def _mean_pairs(self) -> Fraction:
        """Mean pairs of the micro-batches of a few windows."""
        num_pairs = num_micro_batches = 0
        for lane in range(min(self.num_lanes, SAMPLED_WINDOWS)):
            lane_pass = self.lane(0, lane)
            if num_pairs >= SAMPLED_PAIRS or lane_pass.num_windows == 0:
                break
            some = expand(lane_pass.window_units(0), self._units.bounds)[:SAMPLED_PAIRS]
            lengths = self.lengths[some].repeat(self.sharing.num_passes, axis=0)
            planned = plan_window(lengths, self.budget, seed=self._seed, place=(self._dataset, 0, lane, 0), before=None)
            num_pairs += len(planned.rows)
            num_micro_batches += len(planned)
        return Fraction(max(num_pairs, 1), max(num_micro_batches, 1))

    @property
    def num_lanes(self) -> int:
        """Number of lanes (or groups) that units are dealt to."""
        return self.sharing.num_groups

    @property
    def num_units(self) -> int:
        """Number of units to deal."""
        return len(self._units)

    @property
    def deals_pairs(self) -> bool:
        """Whether single pairs are dealt, so that every lane reads from every block."""
        return len(self._units) == len(self.lengths)

    def _compute_deal(self, pass_: int) -> Deal:
        return deal(self._units.tokens, self.num_lanes, seed=self._seed, dataset=self._dataset, pass_=pass_)

    def lane(self, pass_: int, lane: int) -> LanePass:
        """A lane's part of a pass."""
        with self._deal_lock:  # otherwise two threads would both sort all units
            dealt = self._deal(pass_).of_lane(lane)
        units = lane_order(dealt, seed=self._seed, dataset=self._dataset, pass_=pass_, lane=lane)
        counts = self._units.bounds[units + 1] - self._units.bounds[units]
        return LanePass(units, cut_windows(counts, self._window_pairs))

    def window(
        self,
        lane_pass: LanePass,
        *,
        pass_: int,
        lane: int,
        window: int,
        before: int,
        measure: Callable[[Integers], NDArray[np.uint16]] | None = None,
    ) -> tuple[Integers, WindowPlan]:
        """A window's pairs in ascending order, and its micro-batches as rows of them; `before` as in `plan_window`.

        A pair occurs once for each pass in the window. `measure` gives the pairs' actual lengths, if augmentation has
        changed those of the table.
        """
        pairs = np.repeat(expand(lane_pass.window_units(window), self._units.bounds), self.sharing.num_passes)
        place = (self._dataset, pass_, lane, window)
        together = before if self._is_alone else None
        lengths = self.lengths[pairs] if measure is None else measure(pairs)
        return pairs, plan_window(lengths, self.budget, seed=self._seed, place=place, before=together)

    def micro_batches(self, pass_: int, lane: int) -> Iterator[Integers]:
        """The pair ids of each micro-batch of a lane's pass, in order."""
        lane_pass, before = self.lane(pass_, lane), 0
        for number in range(lane_pass.num_windows):
            pairs, plan = self.window(lane_pass, pass_=pass_, lane=lane, window=number, before=before)
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
