"""Scores with confidence intervals and paired tests, by sacreBLEU's own classes, with its seeds and numbers of samples.

So the figures equal those of `sacrebleu --confidence` and `--paired-ar` on the same files (Post, 2018). The p of its
`--paired-bs` is not taken: of equal systems it calls two thirds different at the level of 20 %, since it centres the
absolute differences of its resamples.
"""

import logging
import math
from collections.abc import Sequence
from typing import Any

from configs.components import Metric
from trainer.metrics.scoring import Scorer


def score_runs(
    scorer: Scorer,
    sources: Sequence[str],
    references: Sequence[Sequence[str]],
    hypotheses: Sequence[Sequence[str]],
    *,
    bootstrap: int,
    randomisation: int,
) -> list[dict[str, Any]]:
    """The scores of a set by all metrics, of every run; those that are sums over sentences are tested.

    Args:
        scorer: of the set.
        sources: of the set, without tags.
        references: one or more, each with as many lines.
        hypotheses: of every run.
        bootstrap: resamples of the confidence intervals (Koehn, 2004); 0: none.
        randomisation: trials of the approximate randomisation (Riezler and Maxwell, 2005); 0: none.
    """
    plain = [scorer.score(sources, lines, references) for lines in hypotheses]
    results = []
    for metric in scorer.metrics:
        key = metric.key()
        scoring = scorer.scorings[key]
        if can_resample(metric, scoring):
            runs = _tested(scoring, references, hypotheses, bootstrap=bootstrap, randomisation=randomisation)
        else:
            values = [scores[key].value for scores in plain]
            runs = [{"score": value if math.isfinite(value) else None} for value in values]
        about = {"key": key, "label": metric.label(), "digits": metric.digits, "signature": scorer.signatures[key]}
        results.append({**about, "runs": runs})
    return results


def can_resample(metric: Metric, scoring: object) -> bool:
    """Whether a metric is one of sacreBLEU's own, whose score follows from sums over the sentences."""
    from sacrebleu.metrics.base import Metric as OfSacreBleu

    return isinstance(scoring, OfSacreBleu) and type(metric).score is Metric.score


def _tested(
    scoring: Any,
    references: Sequence[Sequence[str]],
    hypotheses: Sequence[Sequence[str]],
    *,
    bootstrap: int,
    randomisation: int,
) -> list[dict[str, float | None]]:
    """The scores of every run, each tested against the first.

    `mean` and `interval` (its half width, at 95 %) are the bootstrap's; `p` is that of such a difference from the first
    run by chance.
    """
    from sacrebleu.significance import PairedTest

    logging.getLogger("sacrebleu").setLevel(logging.WARNING)
    systems: list[tuple[str, Sequence[str]]] = [(str(n), list(lines)) for n, lines in enumerate(hypotheses)]
    trials = randomisation or 1
    test = PairedTest(
        systems, {"": scoring}, references, test_type="ar", n_samples=trials, n_ar_confidence=bootstrap or -1
    )
    columns: dict[str, list[Any]] = test()[1]
    [results] = [column for name, column in columns.items() if name != "System"]
    runs: list[dict[str, float | None]] = []
    for result in results:
        run: dict[str, float | None] = {"score": float(result.score)}
        if bootstrap:
            run |= {"mean": float(result.mean), "interval": float(result.ci)}
        if runs:
            run["difference"] = difference = float(result.score) - float(results[0].score)
            # sacreBLEU counts the trials whose difference is larger than the tested one: if all are 0, none is.
            is_equal = not difference and result.p_value <= 1 / (trials + 1)
            run["p"] = None if not randomisation else 1.0 if is_equal else float(result.p_value)
        runs.append(run)
    return runs
