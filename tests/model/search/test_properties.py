"""What every translation has, and what it does not depend on."""

import itertools
import math
import random
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from model.attention import CACHE_MULTIPLE
from model.search import Ensemble, search
from model.search.greedy import DROPPED_FRACTION
from tests.model.reference import EOS, pad
from tests.model.search.plain import (
    SOURCES,
    assert_same,
    constraints,
    peaked_model,
    section_of,
    wants_to_end,
)

pytestmark = pytest.mark.usefixtures("candidate_groups")


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    beam=st.integers(1, 6),
    order=st.permutations(range(len(SOURCES))),
    size=st.integers(1, len(SOURCES)),
    sample=st.booleans(),
    data=st.data(),
)
def test_a_translation_does_not_depend_on_its_batch(
    seed: int, beam: int, order: list[int], size: int, sample: bool, data: st.DataObject
) -> None:
    fields, prefixes = data.draw(constraints(9))
    model, n_best = peaked_model(seed, vocab=9), beam
    section = section_of(beam=1 if sample else beam, sample=sample, **fields)
    together = search(model, pad(SOURCES, width=9), section, n_best=n_best, prefixes=prefixes)
    for begin in range(0, len(order), size):
        rows = order[begin : begin + size]
        apart = search(
            model,
            pad([SOURCES[i] for i in rows]),
            section,
            n_best=n_best,
            prefixes=[prefixes[i] for i in rows] if prefixes else None,
            keys=rows,
        )
        for i, hypotheses in zip(rows, apart, strict=True):
            assert_same(hypotheses, [(h.ids, h.score) for h in together[i]])


@pytest.mark.parametrize("sample", [False, True])
def test_finished_rows_stay_until_they_are_many(sample: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    dice, counts = random.Random(1), []
    sources = [[*dice.choices([3, 4, 5, 6], k=dice.randint(1, 8)), EOS] for _ in range(40)]
    model, section = peaked_model(3, vocab=9), section_of(beam=1, sample=sample, max_length_extra=6)
    apart = [search(model, pad([source]), section, keys=[i])[0] for i, source in enumerate(sources)]
    step = Ensemble.step

    def counted(ensemble: Ensemble, last: torch.Tensor, state: Any) -> torch.Tensor:
        counts.append(len(last))
        return step(ensemble, last, state)

    monkeypatch.setattr(Ensemble, "step", counted)
    for (hypothesis,), alone in zip(search(model, pad(sources), section), apart, strict=True):
        assert_same(alone, [(hypothesis.ids, hypothesis.score)])
    changes = [(n, m) for n, m in itertools.pairwise(counts) if n != m]
    assert len(changes) > 3
    assert all(m <= n * (1 - DROPPED_FRACTION) for n, m in changes)
    assert len(counts) > CACHE_MULTIPLE, "longer than the room of a new cache"
    assert sum(counts) > sum(len(alone[0].ids) + 1 for alone in apart)


@pytest.mark.parametrize("fields", [{"beam": 3}, {"beam": 1}, {"beam": 1, "sample": True}], ids=str)
def test_a_model_of_nan_ends_too(fields: dict[str, Any]) -> None:
    model = peaked_model(1)
    with torch.no_grad():
        model.output.weight.fill_(math.nan)
    for (only,) in search(model, pad(SOURCES), section_of(**fields)):
        assert only.ids == []
        assert math.isnan(only.score)


def test_it_ends_early(monkeypatch: pytest.MonkeyPatch) -> None:
    model = wants_to_end(peaked_model(5), 5.0)
    state = model.start(pad(SOURCES))
    monkeypatch.setattr(model, "start", lambda _: state)
    search(model, pad(SOURCES), section_of(beam=3, max_length_extra=7))
    assert state.position == 1
