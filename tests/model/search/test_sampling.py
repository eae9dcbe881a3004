"""Draws follow the distribution that is asked for, by seed and line alone."""

import math
from collections import Counter
from typing import Any

import pytest

from configs import SearchSection
from configs.components import make
from model.parts import Sampler
from model.search import search
from tests.model.reference import BOS, EOS, PAD, pad
from tests.model.search.plain import SOURCES, next_log_probs, peaked_model, section_of

NUM_SAMPLES = 4000
CHI_SQUARE = {1: 10.83, 2: 13.82, 3: 16.27, 4: 18.47, 5: 20.52, 6: 22.46, 7: 24.32, 8: 26.12}
"""By degrees of freedom: exceeded by chance once in a thousand times; the seeds here are fixed."""


def truncated(**fields: Any) -> Sampler:
    sampler: Sampler = make("sampler", "truncated", **fields)
    return sampler


def expected_distribution(
    log_p: list[float], *, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0, epsilon: float = 0.0
) -> dict[int, float]:
    """Temperature, then top-k, then top-p, then epsilon, in words."""
    weights = {t: math.exp(x / temperature) for t, x in enumerate(log_p) if t not in (PAD, BOS)}
    order = sorted(weights, key=lambda t: -weights[t])[: top_k or None]
    total = sum(weights[t] for t in order)
    kept, mass = [], 0.0
    for t in order:
        if mass >= top_p:
            break
        kept.append(t)
        mass += weights[t] / total
    kept = [t for t in kept if t == kept[0] or weights[t] / sum(weights.values()) >= epsilon]
    return {t: weights[t] / sum(weights[k] for k in kept) for t in kept}


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"temperature": 0.5},
        {"temperature": 2.0},
        {"top_k": 3},
        {"top_k": 100},
        {"top_p": 0.7},
        {"top_p": 0.95, "top_k": 5, "temperature": 1.5},
        {"epsilon": 0.1},
        {"epsilon": 0.06, "top_k": 5, "temperature": 1.5},
    ],
    ids=str,
)
def test_first_tokens_are_drawn_by_their_probability(fields: dict[str, Any]) -> None:
    section = section_of(sampler=truncated(**fields), length_penalty=0.0, max_length_extra=1, max_length_ratio=0.3)
    model, source = peaked_model(7, vocab=9), SOURCES[0]  # a limit of two tokens
    (hypotheses,) = search(model, pad([source]), section, n_best=NUM_SAMPLES)
    expected = expected_distribution(next_log_probs(model, source, [[]])[0].tolist(), **fields)
    counts = Counter(h.ids[0] if h.ids else EOS for h in hypotheses)
    assert set(counts) <= set(expected)
    statistic = sum((counts[t] - NUM_SAMPLES * p) ** 2 / (NUM_SAMPLES * p) for t, p in expected.items())
    assert len(expected) > 1
    assert statistic < CHI_SQUARE[len(expected) - 1], (counts, expected)


def test_samples_have_the_log_probability_of_the_model() -> None:
    section = section_of(sampler=truncated(temperature=3.0, top_k=4))
    model = peaked_model(3, vocab=9)
    for source, (hypothesis, *_) in zip(SOURCES, search(model, pad(SOURCES), section, n_best=3), strict=True):
        total = 0.0
        for i, token in enumerate([*hypothesis.ids, EOS]):
            total += next_log_probs(model, source, [hypothesis.ids[:i]])[0, token].item()
        assert hypothesis.log_prob == pytest.approx(total, abs=1e-5)


def test_seeds_lines_and_samples_differ() -> None:
    section = section_of(sampler=truncated(temperature=5.0), max_length_extra=10)
    model = peaked_model(1, vocab=40)
    source = [SOURCES[0]] * 8

    def drawn(seed: int, keys: list[int]) -> list[list[int]]:
        samples = search(model, pad(source), SearchSection(**{**fields, "seed": seed}), n_best=2, keys=keys)
        return [h.ids for hypotheses in samples for h in hypotheses]

    fields = {name: getattr(section, name) for name in section.__dataclass_fields__}
    first = drawn(1, list(range(8)))
    assert first == drawn(1, list(range(8)))
    assert len({tuple(ids) for ids in first}) == 16
    assert not {tuple(ids) for ids in first} & {tuple(ids) for ids in drawn(2, list(range(8)))}
    assert not {tuple(ids) for ids in first} & {tuple(ids) for ids in drawn(1, list(range(8, 16)))}
