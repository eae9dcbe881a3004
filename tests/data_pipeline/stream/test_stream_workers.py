"""The real reader: ranks, loader processes and restarts come and go, the updates stay."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from configs import StreamSection
from configs.components import make
from data_pipeline.prepared.dataset import Dataset
from data_pipeline.stream.batch import MicroBatch
from data_pipeline.stream.phase_data import StreamPhase
from tests.data_pipeline.stream.made import close, merged, open_readers, read_epoch

MODIFIERS: list[dict[str, Any]] = [
    {"kind": "merge"},
    {"kind": "upper_case"},
    {"kind": "prefix", "text": ">>bt<<"},
    {"kind": "typos"},
    {"kind": "noise"},
    {"kind": "bpe_dropout"},
]


@st.composite
def sections(draw: st.DrawFn) -> StreamSection:
    chosen = draw(st.lists(st.sampled_from(range(len(MODIFIERS))), unique=True, max_size=3))
    tokens = draw(st.integers(140, 600))
    return StreamSection(
        micro_batches=draw(st.sampled_from([1, 2, 3, 4, 5, 9])),
        source_tokens=tokens,
        target_tokens=tokens,
        budget=draw(st.sampled_from(["padded", "tokens"])),
        window_pairs=draw(st.integers(40, 1200)),
        temperature=draw(st.sampled_from([1.0, 5.0])),
        augment=[make("modifier", probability=0.3, **MODIFIERS[number]) for number in sorted(chosen)],
        on_oversized_pair="drop",
    )


@st.composite
def cases(draw: st.DrawFn) -> tuple[StreamSection, int, int, list[tuple[int, int, int, bool]]]:
    """A section, a number of datasets, a seed, and legs.

    Each leg has a number of ranks, of loader processes, and of updates until the next one, which may begin a phase.
    """
    leg = st.tuples(st.integers(1, 3), st.integers(0, 3), st.integers(0, 25), st.booleans())
    legs = draw(st.lists(leg, min_size=2, max_size=3))
    return draw(sections()), draw(st.integers(1, 2)), draw(st.integers(0, 2**32)), legs


QUIET: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.function_scoped_fixture]}


@settings(max_examples=6, **QUIET)
@given(case=cases())
def test_any_ranks_and_workers_at_any_resume(spelling: Dataset, case: Any) -> None:
    """Of one dataset or a mixture, with any modifiers, in any phase."""
    check(spelling, *case)


@pytest.mark.slow
@settings(max_examples=24, **QUIET)
@given(case=cases())
def test_24_configurations(spelling: Dataset, case: Any) -> None:
    """More of the same."""
    check(spelling, *case)


def check(
    spelling: Dataset,
    section: StreamSection,
    num_datasets: int,
    seed: int,
    legs: Sequence[tuple[int, int, int, bool]],
) -> None:
    """Updates after any resume are those of one rank that was never disturbed."""

    def open_(world_size: int, state: Any = None, **changes: Any) -> list[Any]:
        own = dataclasses.replace(section, **changes)
        phases = [StreamPhase(numbers=range(num_datasets), weights=[None] * num_datasets, section=own)]
        phases.append(StreamPhase(numbers=[0], weights=[None], section=dataclasses.replace(own, augment=[])))
        return open_readers([spelling] * num_datasets, own, world_size, state, seed=seed, phases=phases)

    undisturbed, state = open_(1, prefetch_updates=0), None
    for world_size, workers, updates, begins_phase in legs:
        readers = open_(world_size, state, workers=workers)
        assert _tokens(read_epoch(readers, updates)) == _tokens(read_epoch(undisturbed, updates))
        for reader in [*readers, *undisturbed] if begins_phase else []:
            reader.begin_phase(1, epoch=reader.epoch + 1)
        state = merged(readers)
        close(readers)
        assert state == merged(undisturbed)
    readers = open_(1, state)
    assert _tokens(read_epoch(readers)) == _tokens(read_epoch(undisturbed))
    close(readers, undisturbed)


def _tokens(batches: Sequence[MicroBatch]) -> list[Any]:
    return [(m.lane, m.dataset, m.pair_ids.tolist(), m.source.tolist(), m.target_output.tolist()) for m in batches]
