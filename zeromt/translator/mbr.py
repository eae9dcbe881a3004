"""Minimum Bayes risk: of several translations of a line, the one most like all of them (Eikema and Aziz, 2022).

The utility is sentence chrF or BLEU as sacreBLEU computes them, BLEU with its effective order. N-grams are counted once
for each candidate and compared pairwise, by sums of minima over whole arrays.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import numpy.typing as npt
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.helpers import extract_all_char_ngrams, extract_all_word_ngrams

from trainer.inference.translation.translator import Translation

Utility = Literal["chrf", "bleu"]
_DIGITS = 9
"""Of an expected utility: sums in other orders differ behind them, which must not decide between equal ones."""

Counts = npt.NDArray[np.int64]


def expected_utilities(texts: Sequence[str], utility: Utility) -> list[float]:
    """The mean utility of each text with all texts, itself included, as references.

    Args:
        texts: candidates; one that is there twice counts twice as a reference.
        utility: chrf or bleu.
    """
    score = _chrf if utility == "chrf" else _bleu
    number_of = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    weights = np.bincount([number_of[text] for text in texts])
    utility_HR = np.array(score(list(number_of)))
    means = (utility_HR * weights).sum(1) / len(texts)
    return [round(float(means[number_of[text]]), _DIGITS) for text in texts]


def ranked(candidates: Sequence[Translation], utility: Utility) -> list[Translation]:
    """The candidates, each scored by its expected utility, the highest first; of equal ones the likeliest.

    Args:
        candidates: of a line, in the order of the engine, which decides last.
        utility: chrf or bleu.
    """
    utilities = expected_utilities([one.text for one in candidates], utility) if candidates else []
    scored = [replace(one, score=score) for one, score in zip(candidates, utilities, strict=True)]
    return sorted(scored, key=lambda one: (-one.score, -one.log_prob))


def _chrf(texts: Sequence[str]) -> list[list[float]]:
    """chrF2 of each text (rows) with each as its reference."""
    grams = [extract_all_char_ngrams(text, CHRF.CHAR_ORDER) for text in texts]
    by_order = [_matches([of_text[n] for of_text in grams]) for n in range(CHRF.CHAR_ORDER)]
    numbers = range(len(texts))
    return [[_f_score([(t[h], t[r], m[h, r]) for t, m in by_order]) for r in numbers] for h in numbers]


def _f_score(statistics: Sequence[tuple[int, int, int]]) -> float:
    """F2 of the mean precision and recall over the orders that both texts have.

    Args:
        statistics: of each order: n-grams of the hypothesis, of the reference, and matches.
    """
    present = [(match / hyp, match / ref) for hyp, ref, match in statistics if hyp > 0 and ref > 0]
    if not present:
        return 0.0
    precision, recall = (float(sum(values)) / len(present) for values in zip(*present, strict=True))
    if not precision + recall:
        return 0.0
    factor = CHRF.BETA**2
    return 100 * (1 + factor) * precision * recall / (factor * precision + recall)


def _bleu(texts: Sequence[str]) -> list[list[float]]:
    """BLEU of each text (rows) with each as its reference, tokenized by 13a."""
    metric = BLEU(effective_order=True)
    orders = range(1, metric.max_ngram_order + 1)
    lines = [metric.tokenizer(text.rstrip()) for text in texts]
    lengths = [len(line.split()) for line in lines]
    by_order = [_matches([extract_all_word_ngrams(line, n, n)[0] for line in lines]) for n in orders]

    def score(h: int, r: int) -> float:
        correct, total = [int(m[h, r]) for _, m in by_order], [int(t[h]) for t, _ in by_order]
        return metric.compute_bleu(
            correct, total, lengths[h], lengths[r], smooth_method=metric.smooth_method, effective_order=True
        ).score

    return [[score(h, r) for r in range(len(texts))] for h in range(len(texts))]


def _matches(counters: "Sequence[Counter[str]]") -> tuple[Counts, Counts]:
    """The n-grams (N) of each text, and those that each two share (N, N)."""
    number_of = {gram: number for number, gram in enumerate(dict.fromkeys(g for counter in counters for g in counter))}
    counts_NG = np.zeros((len(counters), len(number_of)), np.int64)
    for row, counter in enumerate(counters):
        if counter:
            counts_NG[row, [number_of[gram] for gram in counter]] = list(counter.values())
    return counts_NG.sum(1), np.stack([np.minimum(counts_NG, row_G).sum(1) for row_G in counts_NG])
