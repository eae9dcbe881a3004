"""Search against plain searches that decode in full, and against all sequences there are."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.search import Ensemble, max_length, search
from tests.model.reference import pad
from tests.model.search.plain import (
    SOURCES,
    all_sequences,
    assert_same,
    constraints,
    peaked_model,
    plain_beam,
    rules_of,
    section_of,
)

LENGTH_PENALTIES = st.tuples(st.sampled_from(["gnmt", "mean"]), st.sampled_from([0.0, 0.6, 1.0, 3.0]))

pytestmark = pytest.mark.usefixtures("candidate_groups")


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    sizes=st.sampled_from([(4, 7), (5, 6), (6, 5), (7, 4), (7, 1)]),
    penalty=LENGTH_PENALTIES,
    n_best=st.integers(1, 20),
    data=st.data(),
)
def test_a_wide_beam_finds_the_best_of_all(
    seed: int, sizes: tuple[int, int], penalty: tuple[str, float], n_best: int, data: st.DataObject
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
    n_best_lists = search(model, pad(SOURCES), section, n_best=n_best, prefixes=prefixes)
    for i, (hypotheses, source) in enumerate(zip(n_best_lists, SOURCES, strict=True)):
        rules = rules_of(source, vocab, fields, prefixes[i] if prefixes else [], limit=limit)
        everything = all_sequences(model, source, rules, alpha=alpha, kind=kind)
        assert len(hypotheses) == min(n_best, len(everything))
        assert_same(hypotheses, everything[:n_best])


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    beam=st.integers(1, 9),
    penalty=LENGTH_PENALTIES,
    vocab=st.integers(4, 9),
    num_models=st.integers(1, 3),
    patience=st.sampled_from([0.0, 0.5, 1.0, 2.0]),
    data=st.data(),
)
def test_any_beam_finds_what_the_plain_one_finds(
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
    n_best_lists = search(Ensemble(models), pad(SOURCES), section, n_best=n_best, prefixes=prefixes)
    for i, (hypotheses, source) in enumerate(zip(n_best_lists, SOURCES, strict=True)):
        rules = rules_of(source, vocab, fields, prefixes[i] if prefixes else [], limit=len(source) + 3)
        expected = plain_beam(
            models,
            source,
            rules,
            beam=beam,
            alpha=alpha,
            kind=kind,
            n_best=n_best,
            patience=1.0 if beam == 1 else patience or math.inf,  # greedy search ends with its hypothesis
        )
        assert_same(hypotheses, expected)


@pytest.mark.parametrize(
    ("sizes", "n_best", "said"),
    [
        ({}, 0, "n_best: 0 must be between 1 and beam=4"),
        ({}, 5, "n_best: 5 must be between 1 and beam=4"),
        ({"max_positions": 5}, 1, "source: 6 tokens exceed max_positions=5"),
    ],
)
def test_what_is_refused(sizes: dict[str, int], n_best: int, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        search(peaked_model(1, **sizes), pad(SOURCES), section_of(beam=4), n_best=n_best)


@pytest.mark.parametrize(
    ("length", "ratio", "extra", "limit"), [(5, 1.5, 2, 9), (5, 0.1, 0, 1), (5, 2.0, 20, 16), (7, 1.0, 0, 7)]
)
def test_limit(length: int, ratio: float, extra: int, limit: int) -> None:
    section = replace(section_of(), max_length_ratio=ratio, max_length_extra=extra)
    assert max_length(length, section, peaked_model(1)) == limit
