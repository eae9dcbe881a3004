"""What holds for a mixture of any sizes, proportions and K: full updates, exactly-once, resuming on any ranks."""

import dataclasses
import itertools
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from configs import StreamSection
from data_pipeline.order.mixture import PARTS, Mixture
from data_pipeline.order.stream_plan import StreamPlan
from data_pipeline.prepared.dataset import Dataset
from data_pipeline.stream.batch import MicroBatch
from tests.data_pipeline.order.synthetic import even_table
from tests.data_pipeline.stream.made import (
    close,
    drawn_lengths,
    open_readers,
    read_epoch,
    write_dataset,
)

SIZES = (1, 7, 30, 200, 1_000, 4_000)
Pool = dict[tuple[int, int], Dataset]


@pytest.fixture(scope="module")
def pool(small: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Pool:
    """Datasets whose sentences are of one kind, two of each size."""
    root = tmp_path_factory.mktemp("pool")
    return {
        (size, copy): write_dataset(root / f"{size}-{copy}", small, size, seed=seed)
        for size in SIZES
        for copy, seed in enumerate(itertools.islice(_usual_seeds(size), 2))
    }


def _usual_seeds(size: int) -> Iterator[int]:
    """Those whose few pairs are about as long, and as different, as many are; any for datasets too small for that."""
    many = drawn_lengths(np.random.Generator(np.random.Philox(0)), 100_000, 12)
    for seed in itertools.count(size):
        few = drawn_lengths(np.random.Generator(np.random.Philox(seed)), size, 12)
        figures = [few.mean() / many.mean(), few.std() / many.std()]
        if size < 30 or np.abs(np.array(figures) - 1).max() < 0.03:
            yield seed


@dataclasses.dataclass(frozen=True)
class Case:
    """A mixture and how it is handed out."""

    keys: list[tuple[int, int]]
    weights: list[float | None]
    section: StreamSection

    def datasets(self, pool: Pool) -> list[Dataset]:
        return [pool[key] for key in self.keys]


@st.composite
def cases(draw: st.DrawFn, sizes: tuple[int, ...], lanes: tuple[int, ...]) -> Case:
    any_dataset = st.tuples(st.sampled_from(sizes), st.integers(0, 1))
    keys = [
        (4_000, 0),
        *draw(st.lists(any_dataset.filter(lambda key: key != (4_000, 0)), min_size=1, max_size=4, unique=True)),
    ]
    weights = draw(st.one_of(st.none(), st.lists(st.sampled_from([0.5, 1.0, 2.0]), min_size=5, max_size=5)))
    budget = draw(st.sampled_from([256, 512, 1_024]))
    section = StreamSection(
        micro_batches=draw(st.sampled_from(lanes)),
        source_tokens=budget,
        target_tokens=budget,
        window_pairs=draw(st.sampled_from([1_000, 1_000_000])),
        temperature=1.0 if weights else draw(st.sampled_from([1.0, 2.0, 5.0, 100.0])),
        prefetch_updates=0,
    )
    return Case(keys, [*weights[: len(keys)]] if weights else [None] * len(keys), section)


def _updates(datasets: list[Dataset], case: Case, least: int) -> list[list[MicroBatch]]:
    """Of whole epochs, until there are so many micro-batches."""
    [reader] = open_readers(datasets, case.section, 1, None, case.weights)
    updates: list[list[MicroBatch]] = []
    while True:
        while update := [m for m in reader.next_update() if m is not None]:
            updates.append(update)
        reader.end_epoch()
        if len(updates) * case.section.micro_batches >= least:
            break
    reader.close()
    return updates


def _dealt(plan: StreamPlan, lane: int) -> Iterator[NDArray[np.int64]]:
    """The micro-batches of a lane, pass after pass."""
    for pass_ in itertools.count():
        yield from plan.micro_batches(pass_, lane)


def _tokens(update: list[MicroBatch]) -> int:
    return sum(m.num_target_tokens for m in update)


@settings(max_examples=20, deadline=None)
@given(case=cases((30, 200, 1_000, 4_000), (1, 2, 3, 4, 8, 16, 32)))
def test_updates_are_as_large_as_without_a_mixture(pool: Pool, case: Case) -> None:
    """Oracle: all pairs as one dataset, whose epoch's last update is dropped; a mixture has none that is less full.

    Some of the others hold what is left of windows, so that those without a mixture have a mean and a median.
    """
    datasets = case.datasets(pool)
    lengths = np.concatenate([dataset.lengths for dataset in datasets])
    alone = StreamPlan(lengths, even_table(lengths, 256, 25_600), case.section, seed=7)
    lanes = [[lengths[m, 1].sum() + len(m) for m in alone.micro_batches(0, n)] for n in range(alone.num_lanes)]
    without = [int(sum(tokens)) for tokens in itertools.zip_longest(*lanes, fillvalue=0)][:-1]
    assume(len(without) >= 5)
    updates = _updates(datasets, case, 200)
    assert all(len(update) == case.section.micro_batches for update in updates)
    mixture_mean = np.mean([_tokens(update) for update in updates])
    mean, median = np.mean(without), np.median(without)
    assert 0.9 * mean < mixture_mean < 1.1 * max(mean, median), (mixture_mean, mean, median, case)


@settings(max_examples=15, deadline=None)
@given(case=cases(SIZES, (1, 3, 8, 32, 61)))
def test_every_pass_deals_each_pair_as_often(pool: Pool, case: Case) -> None:
    """And each lane takes what it was dealt, pass after pass, leaving nothing out."""
    datasets = case.datasets(pool)
    [reader] = readers = open_readers(datasets, case.section, 1, None, case.weights)
    batches = read_epoch(readers)
    first_id = 0
    for number, (dataset, plan) in enumerate(zip(datasets, reader.phase.plans, strict=True)):
        for pass_ in range(2):
            dealt = [ids for lane in range(plan.num_lanes) for ids in plan.micro_batches(pass_, lane)]
            each = np.repeat(np.arange(dataset.num_pairs), plan.num_copies)
            assert np.array_equal(np.sort(np.concatenate(dealt)), each)
        coming = [_dealt(plan, lane) for lane in range(plan.num_lanes)]
        for micro_batch in (m for m in batches if m.dataset == number):
            assert np.array_equal(micro_batch.pair_ids - first_id, next(coming[micro_batch.lane]))
        first_id += dataset.num_pairs
    close(readers)


@pytest.mark.parametrize("num_lanes", range(2, 10))
def test_lanes_begin_with_different_datasets(num_lanes: int) -> None:
    """Of two that are alike: an update has both, however few lanes there are."""
    mixture = Mixture.of([1000, 1000], [None, None], temperature=1.0, num_lanes=num_lanes)
    counts = [[mixture.ahead(dataset, lane, Fraction(10)) for dataset in range(2)] for lane in range(num_lanes)]
    assert {mixture.choose(taken, [10 * PARTS] * 2) for taken in counts} == {0, 1}
