"""Minimum Bayes risk chooses what plain sacreBLEU calls over all pairs choose."""

import random
from typing import Any

import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from configs.components import Candidate
from tests.small import FILES
from zeromt.translating.mbr import Utility, expected_utilities, ranked


def candidates_of(line: str, number: int, draws: random.Random) -> list[Candidate]:
    """Some of a sentence's words, as samples of a model have."""
    found = []
    for _ in range(number):
        words = [word for word in line.split() if draws.random() < 0.8] or [""]
        if draws.random() < 0.3:
            draws.shuffle(words)
        found.append(Candidate(text=" ".join(words), log_prob=-draws.random()))
    return found


@pytest.mark.parametrize(("utility", "metric"), [("chrf", CHRF()), ("bleu", BLEU(effective_order=True))])
def test_it_chooses_as_all_pairs_of_sacrebleu_do(utility: Utility, metric: Any) -> None:
    draws = random.Random(3)
    lines = ((FILES / "corpus" / "a.en").read_text() + (FILES / "corpus" / "b.en").read_text()).splitlines()[:100]
    assert len(lines) == 100
    for line in lines:
        found = candidates_of(line, 16, draws)
        texts = [one.text for one in found]
        plain = [sum(metric.sentence_score(h, [r]).score for r in texts) / 16 for h in texts]
        assert expected_utilities(texts, utility) == pytest.approx(plain, abs=1e-8)
        best = max(range(16), key=lambda i: (round(plain[i], 9), found[i].log_prob, -i))
        assert texts[ranked(found, utility)[0]] == texts[best]


@pytest.mark.parametrize("utility", ["chrf", "bleu"])
def test_equal_ones_are_in_the_order_of_log_probability(utility: Utility) -> None:
    same = [Candidate(text="a b", log_prob=value) for value in (-3.0, -1.0, -2.0)]
    assert ranked(same, utility) == [1, 2, 0]
    assert ranked([], utility) == []
    assert ranked([Candidate(text=""), Candidate(text="one")], utility)[0] == 1
