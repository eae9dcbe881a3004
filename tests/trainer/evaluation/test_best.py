"""A score beside the best before it."""

import math

import pytest

from configs.components.training import Described
from trainer.evaluation.best import beside_best

BLEU = Described(label="BLEU")
TER = Described(label="TER", higher_is_better=False, digits=1)


@pytest.mark.parametrize(
    ("shown", "scores", "score", "text"),
    [
        (BLEU, {}, 1.0, "the best BLEU so far"),
        (BLEU, {30: 1.0}, 1.0, "the best BLEU so far"),  # its own
        (BLEU, {10: 20.5, 20: 19.0}, 21.0, "the best BLEU so far, +0.50 to step 10"),
        (BLEU, {10: 20.5, 20: 20.5}, 20.5, "BLEU +0.00 to the best, 20.50 of step 10"),
        (BLEU, {10: 20.5, 20: math.nan}, 18.0, "BLEU -2.50 to the best, 20.50 of step 10"),
        (BLEU, {10: math.nan}, 18.0, "the best BLEU so far"),
        (BLEU, {10: 20.5}, math.nan, None),
        (TER, {10: 60.0, 20: 50.0}, 45.5, "the best TER so far, -4.5 to step 20"),
        (TER, {10: 60.0, 20: 50.0}, 55.0, "TER +5.0 to the best, 50.0 of step 20"),
    ],
)
def test_beside_best(shown: Described, scores: dict[int, float], score: float, text: str | None) -> None:
    assert beside_best(scores, 30, score, shown) == text
