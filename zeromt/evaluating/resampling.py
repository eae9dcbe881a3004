"""Scores with confidence intervals and paired tests, by sacreBLEU's own classes, with its seeds and numbers of samples.

So the figures equal those of `sacrebleu --confidence` and `--paired-ar` on the same files (Post, 2018). The p of its
`--paired-bs` is not taken: of equal systems it calls two thirds different at the level of 20 %, since it centres the
absolute differences of its resamples.
"""

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

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
    bootstrap_p: float | None = None
    """Fraction of the resamples whose difference is farther from their mean than the real one is from 0."""
    randomisation_p: float | None = None
    """p of the approximate randomisation against the first run; None for the first."""
    is_equal: bool = False
    """No trial tells the translations from the first run's: p is 1, where sacreBLEU prints its smallest p."""


@dataclass(kw_only=True, slots=True, frozen=True)
class MetricScores:
    """The scores of a set by one metric, of every run."""

    key: str
    label: str
    digits: int
    higher_is_better: bool | None
    signature: str
    is_tested: bool
    """Whether sacreBLEU can resample it."""
    runs: Sequence[RunScore]


class Referenced(Protocol):
    """A set, of which scores need these."""

    @property
    def sources(self) -> Sequence[str]:
        """Without tags, if a metric looks at them."""
        ...

    @property
    def references(self) -> Sequence[Sequence[str]]:
        """One or more references, each with as many lines as there are sources."""
        ...


def score_set(
    scorer: Scorer, shared: Referenced, hypotheses: Sequence[Sequence[str]], labels: Sequence[str], samples: Samples
) -> list[MetricScores]:
    """The scores of a set by all metrics.

    Args:
        scorer: of the set.
        shared: the set.
        hypotheses: of every run.
        labels: what the runs are called.
        samples: how many to draw.
    """
    by_metric = []
    plain = [scorer.score(shared.sources, lines, shared.references) for lines in hypotheses]
    for metric in scorer.metrics:
        key = metric.key()
        scoring = scorer.scorings[key]
        is_tested = can_resample(metric, scoring)
        if is_tested:
            runs = _tested(scoring, shared, hypotheses, labels, samples)
        else:
            values = [scores[key].value for scores in plain]
            runs = [RunScore(score=value if math.isfinite(value) else None) for value in values]
        by_metric.append(
            MetricScores(
                key=key,
                label=metric.label(),
                digits=metric.digits,
                higher_is_better=metric.higher_is_better,
                signature=scorer.signatures[key],
                is_tested=is_tested,
                runs=runs,
            )
        )
    return by_metric


def can_resample(metric: Metric, scoring: object) -> bool:
    """Whether a metric is one of sacreBLEU's own, whose score follows from sums over the sentences."""
    from sacrebleu.metrics.base import Metric as OfSacreBleu

    return isinstance(scoring, OfSacreBleu) and type(metric).score is Metric.score


Drawn = tuple[float, NDArray[np.float64] | None]
"""A score, and those of the bootstrap's resamples, which are of the same sentences for every run."""


def confidence(scoring: Any, hypotheses: Sequence[str], references: Sequence[Sequence[str]], samples: int) -> RunScore:
    """A score with its 95 % interval, as `sacrebleu --confidence` prints them."""
    return _run_score(_resampled(scoring, hypotheses, references, samples))


def _resampled(scoring: Any, hypotheses: Sequence[str], references: Sequence[Sequence[str]], samples: int) -> Drawn:
    from sacrebleu.significance import _bootstrap_resample

    statistics = scoring._extract_corpus_statistics(hypotheses, references)
    score = float(scoring._aggregate_and_compute(statistics).score)
    if samples < 2:
        return score, None
    _, drawn = _bootstrap_resample(statistics, scoring, samples)
    return score, np.array([one.score for one in drawn])


def _tested(
    scoring: Any,
    shared: Referenced,
    hypotheses: Sequence[Sequence[str]],
    labels: Sequence[str],
    samples: Samples,
) -> list[RunScore]:
    """The scores of every run by one of sacreBLEU's metrics, each tested against the first."""
    from sacrebleu.significance import PairedTest

    logging.getLogger("sacrebleu").setLevel(logging.WARNING)
    references = [list(lines) for lines in shared.references]
    systems: list[tuple[str, Sequence[str]]] = [
        (label, list(lines)) for label, lines in zip(labels, hypotheses, strict=True)
    ]
    p: list[float | None] = [None] * len(systems)
    with _statistics_once(scoring):
        if len(systems) > 1 and samples.randomisation:
            test = PairedTest(systems, {"": scoring}, references, test_type="ar", n_samples=samples.randomisation)
            results: list[list[Any]] = [column for name, column in test()[1].items() if name != "System"]
            p[1:] = [float(result.p_value) for result in results[0][1:]]
        first, *others = (_resampled(scoring, lines, references, samples.bootstrap) for _, lines in systems)
    smallest = 1 / (samples.randomisation + 1)
    return [_run_score(first), *(_beside(first, one, p_, smallest) for one, p_ in zip(others, p[1:], strict=True))]


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
    score = replace(_run_score(drawn), difference=drawn[0] - first[0], randomisation_p=p)
    if drawn[1] is not None and first[1] is not None:
        differences = drawn[1] - first[1]
        far = np.abs(differences - differences.mean()) >= abs(drawn[0] - first[0])
        interval = _run_score((0.0, differences)).interval
        score = replace(score, difference_interval=interval, bootstrap_p=float((far.sum() + 1) / (len(far) + 1)))
    # sacreBLEU counts the trials whose difference is larger than the tested one: if all are 0, none is.
    is_equal = not score.difference and not score.difference_interval and p in (None, smallest)
    return replace(score, is_equal=is_equal, randomisation_p=1.0 if is_equal and p is not None else p)


class _statistics_once:  # noqa: N801 (used as a function)
    """Makes a metric of sacreBLEU compute each system's sentence statistics once instead of once per test.

    They take most of the time of TER and chrF. `PairedTest` gets them through the method replaced here.
    """

    def __init__(self, scoring: Any) -> None:
        self._scoring = scoring

    def __enter__(self) -> None:
        extract = self._scoring._extract_corpus_statistics
        known: dict[int, tuple[Sequence[str], Any]] = {}

        def once(hypotheses: Sequence[str], references: Any) -> Any:
            if id(hypotheses) not in known:
                known[id(hypotheses)] = (hypotheses, extract(hypotheses, references))  # kept, so that its id stays
            return known[id(hypotheses)][1]

        self._scoring._extract_corpus_statistics = once

    def __exit__(self, *_: object) -> None:
        del self._scoring._extract_corpus_statistics
