"""Ensembles, scores of given translations, and n-grams that must not return."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from model.search import Ensemble, score, search
from model.search.constraints import NEVER, block_repeats
from tests.model.reference import EOS, pad
from tests.model.search.plain import (
    SCORE,
    SOURCES,
    Rules,
    next_log_probs,
    peaked_model,
    plain_penalty,
    section_of,
)

TARGETS = [[3, 4, 4], [], [5, 3, 6, 6, 4], [6]]


class TestEnsemble:
    def test_models_of_other_sizes(self) -> None:
        models = [peaked_model(1), peaked_model(2, d_model=12, num_heads=3, decoder_layers=2, max_positions=9)]
        ensemble = Ensemble(models)
        assert ensemble.max_positions == 9
        state = ensemble.start(pad(SOURCES))
        found = ensemble.step(torch.full((4,), 1), state)
        expected = torch.cat([next_log_probs(models, source, [[]]) for source in SOURCES])
        torch.testing.assert_close(found.double(), expected, rtol=0, atol=SCORE)

    def test_other_vocabularies(self) -> None:
        with pytest.raises(ValueError, match=r"target vocabularies have \[7, 9\] pieces"):
            Ensemble([peaked_model(1), peaked_model(1, vocab=9)])
        with pytest.raises(ValueError, match="no model"):
            Ensemble([])


class TestScore:
    @settings(max_examples=30, deadline=None)
    @given(
        seed=st.integers(0, 1000),
        num_models=st.integers(1, 2),
        targets=st.lists(st.lists(st.integers(3, 6), max_size=7), min_size=4, max_size=4),
        kind=st.sampled_from(["gnmt", "mean"]),
    )
    def test_is_the_teacher_forced_log_probability(
        self, seed: int, num_models: int, targets: list[list[int]], kind: str
    ) -> None:
        models = [peaked_model(seed + i) for i in range(num_models)]
        section = section_of(length_penalty=0.6, length_penalty_kind=kind)
        found = score(Ensemble(models), pad(SOURCES), targets, section)
        for source, target, one in zip(SOURCES, targets, found, strict=True):
            tokens = [*target, EOS]
            total = sum(next_log_probs(models, source, [target[:i]])[0, t].item() for i, t in enumerate(tokens))
            assert one.ids == target
            assert one.log_prob == pytest.approx(total, abs=SCORE)
            assert one.score == pytest.approx(total / plain_penalty(len(tokens), 0.6, kind), abs=SCORE)

    def test_beyond_the_positions(self) -> None:
        with pytest.raises(ValueError, match="7 tokens to score exceed max_positions=6"):
            score(peaked_model(1, max_positions=6), pad(SOURCES[:1]), [[3] * 6], section_of())

    def test_no_sentences(self) -> None:
        assert score(peaked_model(1), torch.zeros((0, 4), dtype=torch.long), [], section_of()) == []


class TestConstraints:
    @given(
        history=st.lists(st.lists(st.integers(3, 5), min_size=6, max_size=6), min_size=2, max_size=4),
        n=st.integers(1, 7),
    )
    def test_blocks_what_would_complete_an_ngram_again(self, history: list[list[int]], n: int) -> None:
        log_p = torch.zeros(len(history), 1, 8)
        block_repeats(log_p, torch.tensor(history)[:, None], n)
        for row, ids in zip(log_p[:, 0].tolist(), history, strict=True):
            rules = Rules(vocab=8, limit=99, ngram=n)
            assert [t for t in range(2, 8) if row[t] > NEVER / 2] == rules.allowed(ids)

    @pytest.mark.parametrize(
        ("prefix", "said"),
        [
            ([3] * 16, "prefix: 16 tokens"),
            ([3, EOS], "contains PAD, BOS or EOS"),
        ],
    )
    def test_bad_prefixes(self, prefix: list[int], said: str) -> None:
        with pytest.raises(ValueError, match=said):
            search(peaked_model(1), pad(SOURCES[:1]), section_of(), prefixes=[prefix])
        with pytest.raises(ValueError, match="1 for 4 sources"):
            search(peaked_model(1), pad(SOURCES), section_of(), prefixes=[[]])
