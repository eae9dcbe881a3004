"""What holds for any dataset, seed, epoch, K, budget and number of ranks, shown on the plan, without files."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from configs import StreamSection
from data_pipeline.order.stream_plan import StreamPlan
from tests.data_pipeline.order.synthetic import BlockTable, Lengths, block_table, even_table, random_lengths

LONGEST = 40


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


def lanes_of(case: Case) -> list[list[list[int]]]:
    """The pair ids of each micro-batch of each lane."""
    plan = case.plan()
    return [[m.tolist() for m in plan.micro_batches(case.epoch, lane)] for lane in range(plan.num_lanes)]


@settings(max_examples=100, deadline=None)
@given(cases())
def test_each_pair_once_an_epoch_and_within_the_budgets(case: Case) -> None:
    micro_batches = [m for lane in lanes_of(case) for m in lane]
    assert sorted(pair for m in micro_batches for pair in m) == case.fitting()
    for micro_batch in micro_batches:
        lengths = case.padded(np.array(micro_batch))
        taken = len(lengths) * lengths.max(axis=0) if case.section.budget == "padded" else lengths.sum(axis=0)
        assert 1 <= len(micro_batch) <= case.section.max_rows
        assert (taken <= case.budgets).all()


@pytest.mark.parametrize(("num_lanes", "block"), [(4096, 4), pytest.param(8192, 2, marks=pytest.mark.slow)])
def test_4096_lanes_and_more(num_lanes: int, block: int) -> None:
    pairs = 131_072
    lengths = random_lengths(pairs, 2, LONGEST)
    section = StreamSection(micro_batches=num_lanes, source_tokens=128, target_tokens=128)
    case = Case(lengths, even_table(lengths, block, 64), section, seed=3, epoch=1)
    assert not case.plan().deals_pairs
    lanes = lanes_of(case)
    assert sorted(pair for lane in lanes for m in lane for pair in m) == list(range(pairs))
    counts = [len(lane) for lane in lanes]
    assert max(counts) - min(counts) <= 3


def test_lengths_are_read_where_they_are_needed_only() -> None:
    """Opening and dealing take the blocks alone: lengths of 2 billion pairs are 8 GB."""
    lengths = np.full((6400, 2), 10, dtype=np.uint16)
    lengths[3333] = 10, 90
    lengths[3340] = 80, 10
    table = even_table(lengths, 16, 64)
    section = StreamSection(micro_batches=8, source_tokens=64, target_tokens=64, window_pairs=512)
    plan = StreamPlan(lengths, table, section, seed=1)
    lane_pass = plan.lane(0, 3)
    assert plan.oversized() == (2, 3333)
    lengths[:3328] = lengths[3344:] = 90  # of no block that says it has a pair so long
    again = StreamPlan(lengths, table, section, seed=1)
    assert np.array_equal(again.lane(0, 3).units, lane_pass.units)
    assert again.oversized() == (2, 3333)
