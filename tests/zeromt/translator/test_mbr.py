"""Minimum Bayes risk chooses what plain sacreBLEU calls over all pairs choose."""

import random
from typing import Any

import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from tests.small import FILES
from trainer.inference.translation.translator import Translation
from zeromt.translator.mbr import Utility, expected_utilities, ranked


def candidate(text: str, log_prob: float = 0.0) -> Translation:
    return Translation(text=text, log_prob=log_prob, score=0.0, ids=[])


def candidates_of(line: str, number: int, draws: random.Random) -> list[Translation]:
    """Some of a sentence's words, as samples of a model have."""
    candidates = []
    for _ in range(number):
        words = [word for word in line.split() if draws.random() < 0.8] or [""]
        if draws.random() < 0.3:
            draws.shuffle(words)
        candidates.append(candidate(" ".join(words), -draws.random()))
    return candidates


@pytest.mark.parametrize(("utility", "metric"), [("chrf", CHRF()), ("bleu", BLEU(effective_order=True))])
def test_it_chooses_as_all_pairs_of_sacrebleu_do(utility: Utility, metric: Any) -> None:
    draws = random.Random(3)
    lines = ((FILES / "corpus" / "a.en").read_text() + (FILES / "corpus" / "b.en").read_text()).splitlines()[:100]
    assert len(lines) == 100
    for line in lines:
        candidates = candidates_of(line, 16, draws)
        texts = [one.text for one in candidates]
        plain = [sum(metric.sentence_score(h, [r]).score for r in texts) / 16 for h in texts]
        assert expected_utilities(texts, utility) == pytest.approx(plain, abs=1e-8)
        best = max(range(16), key=lambda i: (round(plain[i], 9), candidates[i].log_prob, -i))
        first = ranked(candidates, utility)[0]
        assert first.text == texts[best]
        assert first.score == pytest.approx(plain[best], abs=1e-8)
