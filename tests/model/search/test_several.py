"""Ensembles, scores of given translations, and n-grams that must not return."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from model.search import Ensemble, score, search
from tests.model.reference import EOS, pad
from tests.model.search.plain import (
    SCORE,
    SOURCES,
    next_log_probs,
    peaked_model,
    plain_penalty,
    section_of,
)

TARGETS = [[3, 4, 4], [], [5, 3, 6, 6, 4], [6]]


def test_an_ensemble_of_other_sizes() -> None:
    models = [peaked_model(1), peaked_model(2, d_model=12, num_heads=3, decoder_layers=2, max_positions=9)]
    ensemble = Ensemble(models)
    assert ensemble.max_positions == 9
    state = ensemble.start(pad(SOURCES))
    log_probs = ensemble.step(torch.full((4,), 1), state)
    expected = torch.cat([next_log_probs(models, source, [[]]) for source in SOURCES])
    torch.testing.assert_close(log_probs.double(), expected, rtol=0, atol=SCORE)


def test_no_ensemble_of_other_vocabularies() -> None:
    with pytest.raises(ValueError, match=r"target vocabularies have \[7, 9\] pieces"):
        Ensemble([peaked_model(1), peaked_model(1, vocab=9)])


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 1000),
    num_models=st.integers(1, 2),
    targets=st.lists(st.lists(st.integers(3, 6), max_size=7), min_size=4, max_size=4),
    kind=st.sampled_from(["gnmt", "mean"]),
)
def test_a_score_is_the_teacher_forced_log_probability(
    seed: int, num_models: int, targets: list[list[int]], kind: str
) -> None:
    models = [peaked_model(seed + i) for i in range(num_models)]
    section = section_of(length_penalty=0.6, length_penalty_kind=kind)
    hypotheses = score(Ensemble(models), pad(SOURCES), targets, section)
    for source, target, one in zip(SOURCES, targets, hypotheses, strict=True):
        tokens = [*target, EOS]
        total = sum(next_log_probs(models, source, [target[:i]])[0, t].item() for i, t in enumerate(tokens))
        assert one.ids == target
        assert one.log_prob == pytest.approx(total, abs=SCORE)
        assert one.score == pytest.approx(total / plain_penalty(len(tokens), 0.6, kind), abs=SCORE)


def test_no_score_is_beyond_the_positions() -> None:
    with pytest.raises(ValueError, match="7 tokens to score exceed max_positions=6"):
        score(peaked_model(1, max_positions=6), pad(SOURCES[:1]), [[3] * 6], section_of())


@pytest.mark.parametrize(
    ("prefix", "said"),
    [
        ([3] * 16, "prefix: 16 tokens"),
        ([3, EOS], "contains PAD, BOS or EOS"),
    ],
)
def test_bad_prefixes(prefix: list[int], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        search(peaked_model(1), pad(SOURCES[:1]), section_of(), prefixes=[prefix])
    with pytest.raises(ValueError, match="1 for 4 sources"):
        search(peaked_model(1), pad(SOURCES), section_of(), prefixes=[[]])
