"""The real reader, with loader processes: ranks and processes come and go, the updates stay."""

import dataclasses
import json
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from configs import StreamSection
from data_pipeline.stream.reader import StreamReader, StreamState

Start = Callable[..., list[StreamReader]]
Run = Callable[..., list[Any]]

Pieces = list[tuple[int, int, int]]
"""Ranks, loader processes and updates of each stretch of the epoch; the last goes on to its end."""


@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    num_lanes=st.sampled_from([1, 3, 8, 9]),
    budget=st.integers(140, 600),
    window_pairs=st.integers(40, 1200),
    seed=st.integers(0, 2**32),
    pieces=st.lists(st.tuples(st.integers(1, 3), st.integers(0, 2), st.integers(0, 25)), min_size=1, max_size=3),
)
def test_any_ranks_and_workers_at_any_resume(
    open_ranks: Start, run_epoch: Run, num_lanes: int, budget: int, window_pairs: int, seed: int, pieces: Pieces
) -> None:
    section = StreamSection(
        micro_batches=num_lanes, source_tokens=budget, target_tokens=budget, window_pairs=window_pairs
    )
    undisturbed = run_epoch(open_ranks(dataclasses.replace(section, prefetch_updates=0), 1, seed=seed), num_lanes)
    assert sorted(pair for update in undisturbed for ids in update if ids for pair in ids) == list(range(1000))
    updates: list[Any] = []
    state: StreamState | None = None
    for number, (world_size, workers, limit) in enumerate(pieces):
        readers = open_ranks(dataclasses.replace(section, workers=workers), world_size, state, seed=seed)
        try:
            is_last = number == len(pieces) - 1
            stretch = run_epoch(readers, num_lanes, None if is_last else min(limit, len(undisturbed) - len(updates)))
            updates += stretch
            if not is_last:
                states = [StreamState.from_json(json.loads(json.dumps(r.state().to_json()))) for r in readers]
                state = StreamState.merge(states)
        finally:
            for reader in readers:
                reader.close()
    assert updates == undisturbed
