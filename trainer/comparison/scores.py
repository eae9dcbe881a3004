"""Scores with confidence intervals and paired tests, by sacreBLEU's own classes, with its seeds and numbers of samples.

So the figures equal those of `sacrebleu --confidence`, `--paired-bs` and `--paired-ar` on the same files (Post, 2018).
"""

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from configs.components import Metric
from trainer.comparison.sets import SharedSet
from trainer.metrics.scoring import Scorer


@dataclass(kw_only=True, slots=True, frozen=True)
class Samples:
    """How many samples to draw; sacreBLEU's defaults. 0 turns a test off."""

    bootstrap: int = 1000
    """Resamples of the confidence interval and of the paired bootstrap (Koehn, 2004)."""
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
    bootstrap_p: float | None = None
    """p of the paired bootstrap against the first run; None for the first."""
    randomisation_p: float | None = None
    """p of the approximate randomisation."""
    is_equal: bool = False
    """No sample distinguishes the translations from the first run's: p is 1, where sacreBLEU prints its smallest p."""


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


def score_set(
    scorer: Scorer, shared: SharedSet, hypotheses: Sequence[Sequence[str]], labels: Sequence[str], samples: Samples
) -> list[MetricScores]:
    """The scores of a set by all metrics.

    Args:
        scorer: of the set.
        shared: the set.
        hypotheses: of every run.
        labels: what the runs are called.
        samples: how many to draw.
    """
    found = []
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
        found.append(
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
    return found


def can_resample(metric: Metric, scoring: object) -> bool:
    """Whether a metric is one of sacreBLEU's own, whose score follows from sums over the sentences."""
    from sacrebleu.metrics.base import Metric as OfSacreBleu

    return isinstance(scoring, OfSacreBleu) and type(metric).score is Metric.score


def confidence(scoring: Any, hypotheses: Sequence[str], references: Sequence[Sequence[str]], samples: int) -> RunScore:
    """A score with its 95 % interval, as `sacrebleu --confidence` prints them."""
    found = scoring.corpus_score(hypotheses, references, n_bootstrap=max(samples, 1))
    if samples < 2:
        return RunScore(score=float(found.score))
    return RunScore(score=float(found.score), mean=float(found._mean), interval=float(found._ci))


def _tested(
    scoring: Any,
    shared: SharedSet,
    hypotheses: Sequence[Sequence[str]],
    labels: Sequence[str],
    samples: Samples,
) -> list[RunScore]:
    """The scores of every run by one of sacreBLEU's metrics, each tested against the first."""
    from sacrebleu.significance import PairedTest

    logging.getLogger("sacrebleu").setLevel(logging.WARNING)
    references = [list(lines) for lines in shared.references]
    if len(hypotheses) == 1 or not (samples.bootstrap or samples.randomisation):
        return [confidence(scoring, lines, references, samples.bootstrap) for lines in hypotheses]
    systems: list[tuple[str, Sequence[str]]] = [
        (label, list(lines)) for label, lines in zip(labels, hypotheses, strict=True)
    ]
    results: dict[str, list[Any]] = {}
    with _statistics_once(scoring):
        for test, number in (("bs", samples.bootstrap), ("ar", samples.randomisation)):
            if number:
                _, columns = PairedTest(systems, {"": scoring}, references, test_type=test, n_samples=number)()
                [results[test]] = [column for name, column in columns.items() if name != "System"]
    return [_run_score(results, place, samples) for place in range(len(systems))]


def _run_score(results: dict[str, list[Any]], place: int, samples: Samples) -> RunScore:
    """One run's score and test results."""
    bootstrap, randomisation = (results[test][place] if test in results else None for test in ("bs", "ar"))
    score = next(iter(results.values()))[place].score
    mean, interval = (None, None) if bootstrap is None else (bootstrap.mean, bootstrap.ci)
    if place == 0:
        return RunScore(score=float(score), mean=_number(mean), interval=_number(interval))
    first = next(iter(results.values()))[0].score
    p = {
        "bs": None if bootstrap is None else float(bootstrap.p_value),
        "ar": None if randomisation is None else float(randomisation.p_value),
    }
    drawn = {"bs": samples.bootstrap, "ar": samples.randomisation}
    # sacreBLEU counts the samples whose difference is larger than the tested one: if all are 0, none is.
    is_equal = score == first and all(p[test] == 1 / (drawn[test] + 1) for test in results)
    if is_equal:
        p = {test: 1.0 if test in results else None for test in p}
    return RunScore(
        score=float(score),
        mean=_number(mean),
        interval=_number(interval),
        bootstrap_p=p["bs"],
        randomisation_p=p["ar"],
        is_equal=is_equal,
    )


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


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
