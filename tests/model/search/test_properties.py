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
    SCORE,
    SOURCES,
    assert_same,
    constraints,
    next_log_probs,
    peaked_model,
    section_of,
    wants_to_end,
)

pytestmark = pytest.mark.usefixtures("candidate_groups")


class TestProperties:
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
        self, seed: int, beam: int, order: list[int], size: int, sample: bool, data: st.DataObject
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
    def test_finished_rows_stay_until_they_are_many(self, sample: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        dice, counts = random.Random(1), []
        sources = [[*dice.choices([3, 4, 5, 6], k=dice.randint(1, 8)), EOS] for _ in range(40)]
        model, section = peaked_model(3, vocab=9), section_of(beam=1, sample=sample, max_length_extra=6)
        step = Ensemble.step

        def counted(ensemble: Ensemble, last: torch.Tensor, state: Any) -> torch.Tensor:
            counts.append(len(last))
            return step(ensemble, last, state)

        with monkeypatch.context() as patch:
            patch.setattr(Ensemble, "step", counted)
            together = search(model, pad(sources), section)
        changes = [(n, m) for n, m in itertools.pairwise(counts) if n != m]
        assert len(changes) > 3
        assert all(m <= n * (1 - DROPPED_FRACTION) for n, m in changes)
        assert len(counts) > CACHE_MULTIPLE, "longer than the room of a new cache"
        assert sum(counts) > sum(len(h.ids) + 1 for (h,) in together)
        for i, (hypothesis,) in enumerate(together):
            (alone,) = search(model, pad(sources[i : i + 1]), section, keys=[i])
            assert_same(alone, [(hypothesis.ids, hypothesis.score)])

    @pytest.mark.parametrize("beam", [1, 3])
    @pytest.mark.parametrize("extra", [0, 1])
    def test_the_shortest_limit_leaves_the_end_mark(self, beam: int, extra: int) -> None:
        """A limit of nothing counts as one of one token."""
        model = peaked_model(2)
        section = section_of(beam=beam, max_length_ratio=1e-9, max_length_extra=extra, length_penalty=1.0)
        found = search(model, pad(SOURCES), section, n_best=beam)
        for source, hypotheses in zip(SOURCES, found, strict=True):
            (only,) = hypotheses
            assert only.ids == []
            assert only.score == pytest.approx(next_log_probs(model, source, [[]])[0, EOS].item(), abs=SCORE)

    @pytest.mark.parametrize("beam", [1, 3])
    def test_no_translation_is_longer_than_the_positions(self, beam: int) -> None:
        model = wants_to_end(peaked_model(5, max_positions=6), -5.0)
        found = search(model, pad(SOURCES), section_of(beam=beam, max_length_extra=50))
        assert [len(h[0].ids) + 1 for h in found] == [6] * 4

    @pytest.mark.parametrize("beam", [1, 3])
    def test_no_sentences(self, beam: int) -> None:
        assert search(peaked_model(1), torch.zeros((0, 4), dtype=torch.long), section_of(beam=beam)) == []

    @pytest.mark.parametrize("fields", [{"beam": 3}, {"beam": 1}, {"beam": 1, "sample": True}], ids=str)
    def test_a_model_of_nan_ends_too(self, fields: dict[str, Any]) -> None:
        model = peaked_model(1)
        with torch.no_grad():
            model.output.weight.fill_(math.nan)
        for (only,) in search(model, pad(SOURCES), section_of(**fields)):
            assert only.ids == []
            assert math.isnan(only.score)

    def test_it_ends_early(self, monkeypatch: pytest.MonkeyPatch) -> None:
        model = wants_to_end(peaked_model(5), 5.0)
        state = model.start(pad(SOURCES))
        monkeypatch.setattr(model, "start", lambda _: state)
        search(model, pad(SOURCES), section_of(beam=3, max_length_extra=7))
        assert state.position == 1
