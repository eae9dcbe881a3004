"""Search against plain searches that decode in full, and against all sequences there are."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.search import Ensemble, max_length, search
from tests.model.reference import EOS, pad
from tests.model.search.plain import (
    SCORE,
    SOURCES,
    all_sequences,
    assert_same,
    constraints,
    next_log_probs,
    peaked_model,
    plain_beam,
    plain_penalty,
    rules_of,
    section_of,
)

LENGTH_PENALTIES = st.tuples(st.sampled_from(["gnmt", "mean"]), st.sampled_from([0.0, 0.6, 1.0, 3.0]))

pytestmark = pytest.mark.usefixtures("candidate_groups")


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


class TestArguments:
    @pytest.mark.parametrize("n_best", [0, 5])
    def test_n_best_beyond_the_beam(self, n_best: int) -> None:
        with pytest.raises(ValueError, match=rf"n_best: {n_best} must be between 1 and beam=4"):
            search(peaked_model(1), pad(SOURCES), section_of(beam=4), n_best=n_best)

    def test_a_source_beyond_the_positions(self) -> None:
        model = peaked_model(1, max_positions=5)
        with pytest.raises(ValueError, match="source: 6 tokens exceed max_positions=5"):
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
