"""Several datasets in one stream: proportions, passes, resuming."""

import dataclasses
import logging
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from configs import StreamSection, UserError
from data_pipeline.order.mixture import Mixture
from data_pipeline.order.state import StreamState
from data_pipeline.prepared.dataset import Dataset
from tests.data_pipeline.stream.made import close, merged, open_readers, read_epoch, write_dataset

Make = Callable[..., Dataset]
SECTION = StreamSection(
    micro_batches=4, source_tokens=512, target_tokens=512, window_pairs=20_000, prefetch_updates=2, temperature=5.0
)


@pytest.fixture(scope="module")
def make_dataset(small: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Writes a dataset of random tokens with the small dataset's tokenizer."""

    def make(num_pairs: int, **settings: Any) -> Dataset:
        return write_dataset(tmp_path_factory.mktemp("made") / f"pairs-{num_pairs}", small, num_pairs, **settings)

    return make


@pytest.fixture(scope="module")
def three(make_dataset: Make) -> list[Dataset]:
    """2,000, 10,000 and 50,000 pairs; sentences of the last are longer."""
    return [make_dataset(2_000), make_dataset(10_000, seed=2), make_dataset(50_000, seed=3, mean=20)]


@pytest.fixture(scope="module")
def two(make_dataset: Make) -> list[Dataset]:
    """30 and 700 pairs: one has fewer pairs than lanes have micro-batches."""
    return [make_dataset(30, pairs_per_block=8), make_dataset(700, seed=2, pairs_per_block=16)]


TWO = dataclasses.replace(SECTION, source_tokens=100, target_tokens=100, window_pairs=60, temperature=2.0, max_rows=6)


def test_proportions() -> None:
    sizes = (2_000, 10_000, 50_000)
    for temperature in (1.0, 5.0, 100.0):
        mixture = Mixture.of(sizes, [None] * 3, temperature=temperature, num_lanes=4)
        wanted = np.array(sizes) ** (1 / temperature)
        assert np.allclose(np.array(mixture.proportions) / sum(mixture.proportions), wanted / wanted.sum(), rtol=1e-8)
    weighted = Mixture.of(sizes, [1.0, 3.0, 4.0], temperature=1, num_lanes=4)
    assert [weighted.part(80_000, n) for n in range(3)] == [10_000, 30_000, 40_000]
    assert [Mixture.of([7], [None], temperature=1, num_lanes=n).lane_pairs for n in (1, 3, 9)] == [7, 3, 1]
    tiny = Mixture.of([10, 10], [1e-12, 1.0], temperature=1, num_lanes=1)
    assert tiny.proportions[0] >= 1, "a dataset is never forgotten"


def test_an_epoch_is_as_many_updates_as_hold_all_pairs() -> None:
    """Of 16,000 and 4,000 pairs at even proportions: 20,000 pairs, in 300 micro-batches of 100 and 50."""
    sizes, usual = (16_000, 4_000), [Fraction(100), Fraction(50)]
    for num_lanes, updates in ((1, [300] * 4), (32, [9, 10, 9, 10]), (400, [1, 1, 1, 1])):
        mixture = Mixture.of(sizes, [1, 1], temperature=1, num_lanes=num_lanes)
        assert [mixture.epoch_updates(epoch, usual) for epoch in range(4)] == updates


@pytest.mark.parametrize("num_lanes", [4, 1, 16])
def test_realised_proportions_are_within_one_percent(three: list[Dataset], num_lanes: int) -> None:
    """Over an epoch of three corpora at temperature 5, and over each of the following ones."""
    readers = open_readers(three, dataclasses.replace(SECTION, micro_batches=num_lanes))
    sizes = np.array([d.num_pairs for d in three])
    wanted = sizes**0.2 / (sizes**0.2).sum()
    total = np.zeros(3)
    for epoch in range(2):
        taken = np.zeros(3)
        for batch in read_epoch(readers):
            taken[batch.dataset] += batch.num_pairs
        relative = np.abs(taken / taken.sum() / wanted - 1)
        print(f"K={num_lanes} epoch {epoch}: proportions {taken / taken.sum()}, off by {100 * relative} %")
        assert relative.max() < 0.01
        total += taken
    assert abs(total.sum() / (2 * sizes.sum()) - 1) < 0.01
    assert np.abs(total / total.sum() / wanted - 1).max() < 0.005, "errors do not add up over epochs"
    close(readers)


def states(two: list[Dataset]) -> tuple[StreamState, StreamState]:
    """Between the first epoch and the second, and within the second."""
    readers = open_readers(two, TWO)
    read_epoch(readers)
    between = merged(readers)
    read_epoch(readers, 1)
    within = merged(readers)
    close(readers)
    return between, within


@pytest.mark.parametrize(
    ("change", "weights"), [({"micro_batches": 6}, None), ({"window_pairs": 50}, None), ({}, [1, 5.0])]
)
def test_settings_change_between_epochs_only(
    two: list[Dataset], change: dict[str, Any], weights: list[float] | None, caplog: pytest.LogCaptureFixture
) -> None:
    """New passes begin: each pair of a dataset is used as often as others in those too."""
    between, within = states(two)
    section = dataclasses.replace(TWO, **change, temperature=1.0 if weights else TWO.temperature)
    what = r"proportions: 16.6667 %, 83.3333 %" if weights else f"stream.{next(iter(change), '')}"
    with pytest.raises(UserError, match=rf"{what}.* where the stream was begun with .*until the epoch ends"):
        open_readers(two, section, 1, within, weights)
    highest = [max(cursors[n].pass_ for cursors in between.lanes.values()) for n in range(2)]
    with caplog.at_level(logging.WARNING):
        moved = open_readers(two, section, 2, between, weights)
    assert "each dataset of the mixture begins a new pass" in caplog.text
    assert all(c.pass_ == highest[n] + 1 for r in moved for cs in r.state().lanes.values() for n, c in enumerate(cs))
    batches = read_epoch(moved)
    total = sum(d.num_pairs for d in two)
    assert abs(sum(m.num_pairs for m in batches) - total) <= 6 * 7
    smallest = Counter(i for m in batches for i in m.pair_ids.tolist() if m.dataset == 0)
    assert max(smallest.values()) <= moved[0].phase.plans[0].num_copies
    close(moved)
