"""Search against plain searches that decode in full, and against all sequences there are."""

import itertools
import math
import random
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from model import Ensemble, search
from model.attention import ROOM
from model.search import beam as beam_module
from model.search import length_penalty, max_length
from model.search.ensemble import EnsembleState
from model.search.greedy import DROPPED_SHARE
from tests.model.reference import BOS, EOS, logits_of, pad
from tests.model.search.plain import (
    SCORE,
    SOURCES,
    Rules,
    all_sequences,
    assert_same,
    next_log_probs,
    peaked_model,
    plain_beam,
    plain_penalty,
    section_of,
    wants_to_end,
    without_cache,
)

LENGTH_PENALTIES = st.tuples(st.sampled_from(["gnmt", "mean"]), st.sampled_from([0.0, 0.6, 1.0, 3.0]))


@st.composite
def constraints(draw: st.DrawFn, vocab: int) -> tuple[dict[str, Any], list[list[int]] | None]:
    """Fields of the search section, and a prefix for each source or none at all."""
    fields = {
        "no_repeat_ngram": draw(st.integers(0, 3)),
        "min_length_ratio": draw(st.sampled_from([0.0, 0.5, 1.0])),
        "min_length_extra": draw(st.integers(0, 2)),
    }
    tokens = st.lists(st.integers(EOS + 1, vocab - 1), max_size=3)
    return fields, draw(st.none() | st.lists(tokens, min_size=len(SOURCES), max_size=len(SOURCES)))


def rules_of(source: list[int], vocab: int, fields: dict[str, Any], prefix: list[int], *, limit: int) -> Rules:
    limit = max(limit, len(prefix) + 1)
    shortest = int(len(source) * fields["min_length_ratio"]) + fields["min_length_extra"]
    return Rules(
        vocab=vocab, limit=limit, shortest=min(shortest, limit), ngram=fields["no_repeat_ngram"], prefix=prefix
    )


@pytest.fixture(params=[2, 64], ids=["groups of 2", "no groups"], autouse=True)
def _group(request: pytest.FixtureRequest) -> Any:
    """Tokens of a group of candidates: the tiny vocabularies here have none of 64."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(beam_module, "GROUP", request.param)
        yield


class TestAgainstPlainSearch:
    @settings(max_examples=25, deadline=None)
    @given(
        seed=st.integers(0, 10_000),
        sizes=st.sampled_from([(4, 7), (5, 6), (6, 5), (7, 4)]),
        penalty=LENGTH_PENALTIES,
        n_best=st.integers(1, 20),
        data=st.data(),
    )
    def test_a_wide_beam_finds_the_best_of_all(
        self, seed: int, sizes: tuple[int, int], penalty: tuple[str, float], n_best: int, data: st.DataObject
    ) -> None:
        """(vocabulary, limit) are such that 128 hold all open and ending hypotheses of a step."""
        vocab, limit = sizes
        fields, prefixes = data.draw(constraints(vocab))
        kind, alpha = penalty
        model = peaked_model(seed, vocab=vocab)
        section = section_of(
            beam=128,
            length_penalty=alpha,
            length_penalty_kind=kind,
            max_length_ratio=1e-9,
            max_length_extra=limit,
            **fields,
        )
        found = search(model, pad(SOURCES), section, n_best=n_best, prefixes=prefixes)
        for i, (hypotheses, source) in enumerate(zip(found, SOURCES, strict=True)):
            rules = rules_of(source, vocab, fields, prefixes[i] if prefixes else [], limit=limit)
            everything = all_sequences(model, source, rules, alpha=alpha, kind=kind)
            assert len(hypotheses) == min(n_best, len(everything))
            assert_same(hypotheses, everything[:n_best])

    @settings(max_examples=40, deadline=None)
    @given(
        seed=st.integers(0, 10_000),
        beam=st.integers(2, 9),
        penalty=LENGTH_PENALTIES,
        vocab=st.integers(4, 9),
        num_models=st.integers(1, 3),
        patience=st.sampled_from([0.0, 0.5, 1.0, 2.0]),
        data=st.data(),
    )
    def test_any_beam_finds_what_the_plain_one_finds(
        self,
        seed: int,
        beam: int,
        penalty: tuple[str, float],
        vocab: int,
        num_models: int,
        patience: float,
        data: st.DataObject,
    ) -> None:
        n_best = data.draw(st.integers(1, beam))
        fields, prefixes = data.draw(constraints(vocab))
        kind, alpha = penalty
        models = [peaked_model(seed + i, vocab=vocab) for i in range(num_models)]
        section = section_of(beam=beam, patience=patience, length_penalty=alpha, length_penalty_kind=kind, **fields)
        found = search(Ensemble(models), pad(SOURCES), section, n_best=n_best, prefixes=prefixes)
        for i, (hypotheses, source) in enumerate(zip(found, SOURCES, strict=True)):
            rules = rules_of(source, vocab, fields, prefixes[i] if prefixes else [], limit=len(source) + 3)
            expected = plain_beam(
                models,
                source,
                rules,
                beam=beam,
                alpha=alpha,
                kind=kind,
                n_best=n_best,
                patience=patience or math.inf,
            )
            assert_same(hypotheses, expected)

    @settings(max_examples=40, deadline=None)
    @given(seed=st.integers(0, 10_000), vocab=st.integers(4, 9), data=st.data())
    def test_greedy_is_the_argmax_of_a_full_decode(self, seed: int, vocab: int, data: st.DataObject) -> None:
        fields, prefixes = data.draw(constraints(vocab))
        model = peaked_model(seed, vocab=vocab)
        found = search(model, pad(SOURCES), section_of(beam=1, length_penalty=0.7, **fields), prefixes=prefixes)
        for i, ((hypothesis,), source) in enumerate(zip(found, SOURCES, strict=True)):
            rules = rules_of(source, vocab, fields, prefixes[i] if prefixes else [], limit=len(source) + 3)
            ids: list[int] = []
            total = 0.0
            while not ids or ids[-1] != EOS:
                log_p = next_log_probs(model, source, [ids])[0]
                token = max(rules.allowed(ids), key=lambda t: float(log_p[t]))
                total += log_p[token].item()
                ids.append(token)
            assert hypothesis.ids == ids[:-1]
            assert hypothesis.log_prob == pytest.approx(total, abs=SCORE)
            assert hypothesis.score == pytest.approx(total / plain_penalty(len(ids), 0.7), abs=SCORE)

    @pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
    @pytest.mark.parametrize("norm_position", ["pre", "post"])
    def test_steps_with_a_cache_are_a_full_decode(self, positions: str, norm_position: str) -> None:
        model = peaked_model(3, positions=positions, norm_position=norm_position, decoder_layers=2)
        target = torch.tensor([[BOS, 3, 4, 4, 5], [BOS, 6, 6, 3, 2], [BOS, 2, 3, 5, 4], [BOS, 4, 3, 6, 5]])
        with torch.no_grad():
            full = F.log_softmax(logits_of(model, pad(SOURCES), target), dim=-1)
            state = model.start(pad(SOURCES))
            for position in range(target.shape[1]):
                step = model.step(target[:, position], state)
                torch.testing.assert_close(step, full[:, position], rtol=0, atol=1e-5)

    def test_rows_of_a_state_can_be_chosen_before_the_first_step(self) -> None:
        model, rows = peaked_model(4), torch.tensor([2, 2, 1])
        with torch.no_grad():
            state = model.start(pad(SOURCES))
            state.select(rows, rows)
            chosen = model.step(torch.full((3,), BOS), state)
            all_ = model.step(torch.full((4,), BOS), model.start(pad(SOURCES)))
        torch.testing.assert_close(chosen, all_[rows], rtol=0, atol=1e-5)

    def test_rows_of_a_state_can_trade_places(self) -> None:
        model = peaked_model(4)
        rows = torch.tensor([2, 0, 0, 3])
        with torch.no_grad():
            state = model.start(pad(SOURCES))
            model.step(torch.full((4,), BOS), state)
            model.step(torch.tensor([3, 4, 5, 6]), state)
            state.select(rows, rows)
            moved = model.step(torch.tensor([3, 3, 4, 4]), state)
            target = torch.tensor([[BOS, 5, 3], [BOS, 3, 3], [BOS, 3, 4], [BOS, 6, 4]])
            full = F.log_softmax(logits_of(model, pad(SOURCES)[rows], target)[:, -1], dim=-1)
        torch.testing.assert_close(moved, full, rtol=0, atol=1e-5)


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

        def counted(ensemble: Ensemble, last: torch.Tensor, state: EnsembleState) -> torch.Tensor:
            counts.append(len(last))
            return step(ensemble, last, state)

        with monkeypatch.context() as patch:
            patch.setattr(Ensemble, "step", counted)
            together = search(model, pad(sources), section)
        changes = [(n, m) for n, m in itertools.pairwise(counts) if n != m]
        assert len(changes) > 3
        assert all(m <= n * (1 - DROPPED_SHARE) for n, m in changes)
        assert len(counts) > ROOM, "longer than the room of a new cache"
        assert sum(counts) > sum(len(h.ids) + 1 for (h,) in together)
        for i, (hypothesis,) in enumerate(together):
            (alone,) = search(model, pad(sources[i : i + 1]), section, keys=[i])
            assert_same(alone, [(hypothesis.ids, hypothesis.score)])

    @pytest.mark.parametrize("fields", [{}, {"beam": 1}, {"beam": 1, "sample": True}], ids=str)
    def test_a_translation_does_not_depend_on_the_cache(
        self, fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for seed in range(5):
            model, section = peaked_model(seed, vocab=9), section_of(no_repeat_ngram=2, min_length_extra=2, **fields)
            n_best = 2 if section.sample else section.beam
            cached = search(model, pad(SOURCES), section, n_best=n_best)
            without_cache(model, monkeypatch)
            for one, other in zip(cached, search(model, pad(SOURCES), section, n_best=n_best), strict=True):
                assert_same(one, [(h.ids, h.score) for h in other])

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    @pytest.mark.parametrize("beam", [1, 2, 6, 30])
    def test_what_every_translation_has(self, beam: int, dtype: torch.dtype) -> None:
        for seed in range(4):
            model = peaked_model(seed, vocab=8).to(dtype)
            section = section_of(beam=beam, max_length_ratio=0.5, max_length_extra=2)
            for source, hypotheses in zip(SOURCES, search(model, pad(SOURCES), section, n_best=beam), strict=True):
                limit = int(len(source) * 0.5) + 2
                assert 1 <= len(hypotheses) <= beam
                assert all(len(h.ids) + 1 <= limit for h in hypotheses)
                assert all(EOS < token < 8 for h in hypotheses for token in h.ids)
                assert all(-1e6 < h.score < 0 for h in hypotheses)
                assert [h.score for h in hypotheses] == sorted((h.score for h in hypotheses), reverse=True)
                assert len({tuple(h.ids) for h in hypotheses}) == len(hypotheses)

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

    def test_a_batch_that_ends_at_once(self) -> None:
        model = wants_to_end(peaked_model(5), 5.0)
        for beam in (1, 3):
            found = search(model, pad(SOURCES), section_of(beam=beam))
            assert [h[0].ids for h in found] == [[]] * 4

    @pytest.mark.parametrize("beam", [1, 3])
    def test_no_sentences(self, beam: int) -> None:
        assert search(peaked_model(1), torch.zeros((0, 4), dtype=torch.long), section_of(beam=beam)) == []

    @pytest.mark.parametrize("beam", [1, 3])
    def test_a_model_of_nan_ends_too(self, beam: int) -> None:
        model = peaked_model(1)
        with torch.no_grad():
            model.output.weight.fill_(math.nan)
        for (only,) in search(model, pad(SOURCES), section_of(beam=beam), n_best=beam):
            assert only.ids == []
            assert math.isnan(only.score)

    @pytest.mark.parametrize("seed", range(6))
    def test_an_early_end_loses_nothing(self, seed: int) -> None:
        """The best of one is the best of many, for which search goes on longer."""
        model = peaked_model(seed, vocab=9)
        for alpha in (0.0, 1.0, 4.0):
            section = section_of(beam=5, length_penalty=alpha, max_length_extra=7)
            few = search(model, pad(SOURCES), section, n_best=1)
            many = search(model, pad(SOURCES), section, n_best=5)
            assert [h[0].score for h in few] == pytest.approx([h[0].score for h in many], abs=SCORE)

    def test_it_ends_early(self, monkeypatch: pytest.MonkeyPatch) -> None:
        model = wants_to_end(peaked_model(5), 5.0)
        state = model.start(pad(SOURCES))
        monkeypatch.setattr(model, "start", lambda _: state)
        search(model, pad(SOURCES), section_of(beam=3, max_length_extra=7))
        assert state.position == 1


class TestArguments:
    @pytest.mark.parametrize("n_best", [0, 5])
    def test_n_best_beyond_the_beam(self, n_best: int) -> None:
        with pytest.raises(ValueError, match=rf"n_best: {n_best} is not allowed with beam=4; allowed is 1 to the beam"):
            search(peaked_model(1), pad(SOURCES), section_of(beam=4), n_best=n_best)

    def test_a_source_beyond_the_positions(self) -> None:
        model = peaked_model(1, max_positions=5)
        with pytest.raises(ValueError, match="source: 6 tokens; allowed is at most max_positions=5"):
            search(model, pad(SOURCES), section_of())

    def test_a_model_that_trains(self) -> None:
        with pytest.raises(AssertionError, match="evaluation mode"):
            search(peaked_model(1).train(), pad(SOURCES), section_of())

    @pytest.mark.parametrize(
        ("length", "ratio", "extra", "limit"), [(5, 1.5, 2, 9), (5, 0.1, 0, 1), (5, 2.0, 20, 16), (7, 1.0, 0, 7)]
    )
    def test_limit(self, length: int, ratio: float, extra: int, limit: int) -> None:
        section = replace(section_of(), max_length_ratio=ratio, max_length_extra=extra)
        assert max_length(length, section, peaked_model(1)) == limit

    @pytest.mark.parametrize(
        ("length", "alpha", "penalty"), [(1, 0.6, 1.0), (7, 0.0, 1.0), (7, 1.0, 2.0), (19, 0.5, 2.0)]
    )
    def test_length_penalty(self, length: int, alpha: float, penalty: float) -> None:
        assert length_penalty(length, alpha) == pytest.approx(penalty)
