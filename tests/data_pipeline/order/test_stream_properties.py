"""What holds for any dataset, seed, epoch, K, budget and number of ranks, shown on the plan, without files."""

import itertools
import json
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from configs import StreamSection
from data_pipeline.order.stream_plan import LanePass, StreamPlan
from data_pipeline.order.windows import WindowPlan
from tests.data_pipeline.order.synthetic import BlockTable, Lengths, block_table, even_table, random_lengths

LONGEST = 40

Update = list[list[int] | None]
"""Pair ids by lane."""


@dataclass(frozen=True)
class Case:
    """All that an epoch's order may depend on."""

    lengths: Lengths
    blocks: BlockTable
    section: StreamSection
    seed: int
    epoch: int

    def plan(self) -> StreamPlan:
        return StreamPlan(self.lengths, self.blocks, self.section, seed=self.seed)

    def fitting(self) -> list[int]:
        """The pairs that a micro-batch can hold, by the definition of a budget."""
        padded = self.padded(np.arange(len(self.lengths)))
        return np.flatnonzero((padded <= self.budgets).all(axis=1)).tolist()

    def padded(self, pairs: NDArray[np.int64]) -> NDArray[np.int64]:
        multiple = self.section.length_multiple if self.section.budget == "padded" else 1
        return -(-(self.lengths[pairs].astype(np.int64) + 1) // multiple) * multiple

    @property
    def budgets(self) -> list[int]:
        return [self.section.source_tokens, self.section.target_tokens]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    sizes = draw(st.lists(st.integers(1, 40), min_size=1, max_size=60))
    cuts = sorted(draw(st.sets(st.integers(1, len(sizes) - 1), max_size=12))) if len(sizes) > 1 else []
    shards = np.diff([0, *cuts, len(sizes)]).tolist()
    lengths = random_lengths(sum(sizes), draw(st.integers(0, 1000)), LONGEST)
    section = StreamSection(
        micro_batches=draw(st.one_of(st.integers(1, 8), st.integers(1, 64))),
        source_tokens=draw(st.integers(8, 500)),
        target_tokens=draw(st.integers(8, 500)),
        budget=draw(st.sampled_from(["padded", "tokens"])),
        max_rows=draw(st.integers(1, 60)),
        window_pairs=draw(st.sampled_from([1, 16, 40, 100, 10_000])),
        length_multiple=draw(st.sampled_from([1, 4, 8])),
        on_oversized_pair="drop",
    )
    epoch, seed = draw(st.integers(0, 1000)), draw(st.integers(0, 2**70))
    return Case(lengths, block_table(lengths, sizes, shards), section, seed, epoch)


class Cursor(NamedTuple):
    window: int
    position: int
    before: int


class Rank:
    """What a reader does on a rank, without tokens. It plans its own lanes and nothing else."""

    def __init__(self, case: Case, rank: int, world_size: int, cursors: dict[int, Cursor]) -> None:
        num_lanes = case.section.micro_batches
        self.lanes = range(rank, num_lanes, world_size)
        self.cursors = {lane: cursors[lane] for lane in self.lanes}
        self._num_slots = -(-num_lanes // world_size)
        self._epoch = case.epoch
        self._plan = case.plan() if self.lanes else None
        self._windows: dict[int, tuple[LanePass, int, NDArray[np.int64], WindowPlan]] = {}

    def next(self) -> list[list[int] | None]:
        """A micro-batch of each of its lanes, as many slots on every rank."""
        slots = [self._next(lane) for lane in self.lanes]
        return slots + [None] * (self._num_slots - len(slots))

    def _next(self, lane: int) -> list[int] | None:
        assert self._plan is not None
        while True:
            window, position, before = self.cursors[lane]
            if lane not in self._windows or self._windows[lane][1] != window:
                lane_pass = self._plan.lane(self._epoch, lane)
                if window == lane_pass.num_windows:
                    return None
                pairs, _ = self._plan.pairs(lane_pass, window)
                lengths = self._plan.lengths[pairs]
                plan = self._plan.cut(lengths, pass_=self._epoch, lane=lane, window=window, before=before)
                self._windows[lane] = (lane_pass, window, pairs, plan)
            _, _, pairs, plan = self._windows[lane]
            if position < len(plan):
                self.cursors[lane] = Cursor(window, position + 1, before)
                micro_batch: list[int] = pairs[plan.micro_batch(position)].tolist()
                return micro_batch
            self.cursors[lane] = Cursor(window + 1, 0, before + len(plan))


def run(case: Case, legs: list[tuple[int, int]]) -> list[Update]:
    """An epoch on some number of ranks, saved after some updates, gone on with on another number, and so on."""
    num_lanes = case.section.micro_batches
    cursors = {lane: Cursor(0, 0, 0) for lane in range(num_lanes)}
    updates: list[Update] = []
    for world_size, limit in [*legs, (1, 1_000_000)]:
        ranks = [Rank(case, rank, world_size, cursors) for rank in range(world_size)]
        for _ in range(limit):
            fetched = [rank.next() for rank in ranks]
            assert {len(slots) for slots in fetched} == {-(-num_lanes // world_size)}
            if all(m is None for slots in fetched for m in slots):
                return updates
            update: Update = [None] * num_lanes
            for rank, slots in zip(ranks, fetched, strict=True):
                for lane, micro_batch in zip(rank.lanes, slots, strict=False):
                    update[lane] = micro_batch
            updates.append(update)
        saved = {lane: c for rank in ranks for lane, c in rank.cursors.items()}
        assert sorted(saved) == list(range(num_lanes))
        text = json.dumps({str(lane): c for lane, c in saved.items()})
        cursors = {int(lane): Cursor(*c) for lane, c in json.loads(text).items()}
    raise AssertionError("the epoch does not end")


def undisturbed(case: Case) -> list[Update]:
    """The epoch by its definition: lane beside lane."""
    plan = case.plan()
    lanes = [[m.tolist() for m in plan.micro_batches(case.epoch, lane)] for lane in range(plan.num_lanes)]
    return [list(update) for update in itertools.zip_longest(*lanes)]


@settings(max_examples=100, deadline=None)
@given(cases())
def test_each_pair_once_an_epoch_and_within_the_budgets(case: Case) -> None:
    micro_batches = [m for update in undisturbed(case) for m in update if m is not None]
    assert sorted(pair for m in micro_batches for pair in m) == case.fitting()
    for micro_batch in micro_batches:
        lengths = case.padded(np.array(micro_batch))
        taken = len(lengths) * lengths.max(axis=0) if case.section.budget == "padded" else lengths.sum(axis=0)
        assert 1 <= len(micro_batch) <= case.section.max_rows
        assert (taken <= case.budgets).all()


@settings(max_examples=100, deadline=None)
@given(cases(), st.lists(st.tuples(st.integers(1, 70), st.integers(0, 12)), max_size=4))
def test_ranks_come_and_go_at_any_update(case: Case, legs: list[tuple[int, int]]) -> None:
    assert run(case, legs) == undisturbed(case)


@settings(max_examples=15, deadline=None)
@given(cases(), st.integers(1, 4096), st.integers(1, 4096), st.integers(0, 10))
def test_up_to_thousands_of_ranks(case: Case, first: int, second: int, updates: int) -> None:
    assert run(case, [(first, updates), (second, 5)]) == undisturbed(case)


@pytest.mark.parametrize(
    ("num_lanes", "block", "units"),
    [(4096, 4, 32_768), pytest.param(8192, 2, 65_536, marks=pytest.mark.slow)],
)
def test_4096_lanes_and_more(num_lanes: int, block: int, units: int) -> None:
    """Of the ranks, the first, the last and some between."""
    pairs = 131_072
    lengths = random_lengths(pairs, 2, LONGEST)
    blocks = even_table(lengths, block, 64)
    section = StreamSection(micro_batches=num_lanes, source_tokens=128, target_tokens=128)
    case = Case(lengths, blocks, section, seed=3, epoch=1)
    assert case.plan().num_units == units
    updates = undisturbed(case)
    assert sorted(pair for update in updates for m in update if m for pair in m) == list(range(pairs))
    counts = [sum(update[lane] is not None for update in updates) for lane in range(num_lanes)]
    assert max(counts) == len(updates)
    assert max(counts) - min(counts) <= 3
    resumed = {lane: Cursor(0, 2, 0) for lane in range(num_lanes)}
    for world_size, rank in ((4096, 4095), (4096, 0), (3000, 1096), (5000, 4999), (1000, 7)):
        simulated = Rank(case, rank, world_size, resumed)
        slots = simulated.next()
        assert len(slots) == -(-num_lanes // world_size)
        for lane, micro_batch in zip(simulated.lanes, slots, strict=False):
            assert micro_batch == updates[2][lane]


@settings(max_examples=60, deadline=None)
@given(cases())
def test_oversized_pairs_are_counted(case: Case) -> None:
    missing = sorted(set(range(len(case.lengths))) - set(case.fitting()))
    assert case.plan().oversized() == (len(missing), missing[0] if missing else None)


class Watched(np.ndarray[Any, Any]):
    """A length table that counts the rows that are looked at."""

    looked_at = 0

    def __getitem__(self, index: Any) -> Any:
        found = np.asarray(self)[index]
        Watched.looked_at += len(found)
        return found

    def __array_ufunc__(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("the whole table is read")

    def sum(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("the whole table is read")


def test_lengths_are_read_where_they_are_needed_only() -> None:
    lengths = np.full((6400, 2), 10, dtype=np.uint16)
    lengths[3333] = 10, 90
    lengths[3340] = 80, 10
    table = even_table(lengths, 16, 64)
    section = StreamSection(micro_batches=8, source_tokens=64, target_tokens=64, window_pairs=512)
    Watched.looked_at = 0
    plan = StreamPlan(lengths.view(Watched), table, section, seed=1)
    lane_pass = plan.lane(0, 3)
    assert plan.num_units == 100
    assert Watched.looked_at == 0
    assert plan.oversized() == (2, 3333)
    assert Watched.looked_at == 16  # both stand in one block
    pairs, _ = plan.pairs(lane_pass, 0)
    assert Watched.looked_at == 16
    assert len(pairs) <= 512
