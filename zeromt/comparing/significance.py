"""Scores with confidence intervals and paired tests, by sacreBLEU's own classes, with its seeds and numbers of samples.

So the figures equal those of `sacrebleu --confidence` and `--paired-ar` on the same files (Post, 2018). The p of its
`--paired-bs` is not taken: of equal systems it calls two thirds different at the level of 20 %, since it centres the
absolute differences of its resamples.
"""

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from configs.components import Metric
from trainer.metrics.scoring import Scorer


@dataclass(kw_only=True, slots=True, frozen=True)
class Samples:
    """How many samples to draw; sacreBLEU's defaults. 0 turns a test off."""

    bootstrap: int = 1000
    """Resamples of the confidence intervals (Koehn, 2004)."""
    randomisation: int = 10_000
    """Trials of the approximate randomisation (Riezler and Maxwell, 2005)."""


@dataclass(kw_only=True, slots=True, frozen=True)
class RunScore:
    """One run's score of a set by one metric."""

    score: float | None
    """None if the metric failed."""
    mean: float | None = None
    """Mean over the bootstrap's resamples."""
    interval: float | None = None
    """Half the width of their 95 % interval."""
    difference: float | None = None
    """From the first run; None for the first."""
    difference_interval: float | None = None
    """Half the width of its 95 % interval, over the same resamples for both."""
    p: float | None = None
    """p of the approximate randomisation against the first run; None for the first."""
    is_equal: bool = False
    """No trial tells the translations from the first run's: p is 1, where sacreBLEU prints its smallest p."""


@dataclass(kw_only=True, slots=True, frozen=True)
class MetricScores:
    """The scores of a set by one metric, of every run."""

    key: str
    label: str
    digits: int
    signature: str
    runs: Sequence[RunScore]


def score_runs(
    scorer: Scorer,
    sources: Sequence[str],
    references: Sequence[Sequence[str]],
    hypotheses: Sequence[Sequence[str]],
    samples: Samples,
) -> list[MetricScores]:
    """The scores of a set by all metrics; those that are sums over sentences are tested.

    Args:
        scorer: of the set.
        sources: of the set, without tags.
        references: one or more, each with as many lines.
        hypotheses: of every run.
        samples: how many to draw.
    """
    plain = [scorer.score(sources, lines, references) for lines in hypotheses]
    found = []
    for metric in scorer.metrics:
        key = metric.key()
        if can_resample(metric, scorer.scorings[key]):
            runs = _tested(scorer.scorings[key], references, hypotheses, samples)
        else:
            values = [scores[key].value for scores in plain]
            runs = [RunScore(score=value if math.isfinite(value) else None) for value in values]
        signature = scorer.signatures[key]
        found.append(MetricScores(key=key, label=metric.label(), digits=metric.digits, signature=signature, runs=runs))
    return found


def can_resample(metric: Metric, scoring: object) -> bool:
    """Whether a metric is one of sacreBLEU's own, whose score follows from sums over the sentences."""
    from sacrebleu.metrics.base import Metric as OfSacreBleu

    return isinstance(scoring, OfSacreBleu) and type(metric).score is Metric.score


Drawn = tuple[float, NDArray[np.float64] | None]
"""A score, and those of the bootstrap's resamples, which are of the same sentences for every run."""


def _tested(
    scoring: Any, references: Sequence[Sequence[str]], hypotheses: Sequence[Sequence[str]], samples: Samples
) -> list[RunScore]:
    """The scores of every run by one of sacreBLEU's metrics, each tested against the first."""
    from sacrebleu.significance import PairedTest

    logging.getLogger("sacrebleu").setLevel(logging.WARNING)
    p: list[float | None] = [None] * len(hypotheses)
    if len(hypotheses) > 1 and samples.randomisation:
        systems: list[tuple[str, Sequence[str]]] = [(str(n), list(lines)) for n, lines in enumerate(hypotheses)]
        test = PairedTest(systems, {"": scoring}, references, test_type="ar", n_samples=samples.randomisation)
        results: list[list[Any]] = [column for name, column in test()[1].items() if name != "System"]
        p[1:] = [float(result.p_value) for result in results[0][1:]]
    first, *others = (_resampled(scoring, lines, references, samples.bootstrap) for lines in hypotheses)
    smallest = 1 / (samples.randomisation + 1)
    return [_run_score(first), *(_beside(first, one, p_, smallest) for one, p_ in zip(others, p[1:], strict=True))]


def _resampled(scoring: Any, hypotheses: Sequence[str], references: Sequence[Sequence[str]], samples: int) -> Drawn:
    from sacrebleu.significance import _bootstrap_resample

    statistics = scoring._extract_corpus_statistics(hypotheses, references)
    score = float(scoring._aggregate_and_compute(statistics).score)
    if samples < 2:
        return score, None
    _, drawn = _bootstrap_resample(statistics, scoring, samples)
    return score, np.array([one.score for one in drawn])


def _run_score(drawn: Drawn) -> RunScore:
    from sacrebleu.significance import estimate_ci

    score, resamples = drawn
    mean, interval = (None, None) if resamples is None else map(float, estimate_ci(resamples))
    return RunScore(score=score, mean=mean, interval=interval)


def _beside(first: Drawn, drawn: Drawn, p: float | None, smallest: float) -> RunScore:
    """One run's figures, with its difference from the first run's.

    Args:
        first: of the first run.
        drawn: of the run.
        p: of the approximate randomisation.
        smallest: the smallest p that it can have.
    """
    interval = None if drawn[1] is None or first[1] is None else _run_score((0.0, drawn[1] - first[1])).interval
    difference = drawn[0] - first[0]
    # sacreBLEU counts the trials whose difference is larger than the tested one: if all are 0, none is.
    is_equal = not difference and not interval and p in (None, smallest)
    return replace(
        _run_score(drawn),
        difference=difference,
        difference_interval=interval,
        p=1.0 if is_equal and p is not None else p,
        is_equal=is_equal,
    )
