"""Scores of translations by several metrics, with signatures."""

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from configs.components import Metric, ScoredText
from configs.errors import UserError

log = logging.getLogger(__name__)


@dataclass(kw_only=True, slots=True, frozen=True)
class Score:
    """A corpus score."""

    value: float
    """NaN if the metric failed."""
    signature: str
    """Scores may be compared only if their signatures are equal."""


class Scorer:
    """Scores translations of one text, cased and detokenised, by several metrics."""

    def __init__(self, metrics: Sequence[Metric], text: ScoredText, *, num_references: int = 1) -> None:
        """Check that all metrics work.

        Args:
            metrics: their figures must have different names.
            text: the text to score.
            num_references: per sentence.

        Raises:
            UserError: a metric cannot be computed here.
        """
        self.metrics = list(metrics)
        self.scorings = {metric.key(): metric.build(text) for metric in metrics}
        """The objects that compute the metrics, by the names of the figures."""
        self.signatures: dict[str, str] = {}
        """By the names of the figures."""
        for metric in metrics:
            key, scoring = metric.key(), self.scorings[metric.key()]
            try:  # a metric has a signature only after scoring
                metric.score(scoring, sources=["a"], hypotheses=["a"], references=[["a"]] * num_references)
                self.signatures[key] = str(scoring.get_signature())
            except Exception as error:
                raise UserError(f"evaluation.metrics: {key} cannot be used: {_describe(error)}") from error

    def score(
        self, sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[Sequence[str]]
    ) -> dict[str, Score]:
        """Corpus scores by the names of their figures. A failing metric has no score, and the log says why.

        Args:
            sources: the source lines.
            hypotheses: their translations.
            references: `num_references` lists of lines.
        """
        scores = {}
        for metric in self.metrics:
            key = metric.key()
            try:
                value = metric.score(self.scorings[key], sources=sources, hypotheses=hypotheses, references=references)
            except Exception as error:  # any error: a failed score must not end a run
                log.warning("evaluation: %s has no score: %s", metric.label(), _describe(error))
                value = math.nan
            scores[key] = Score(value=value, signature=self.signatures[key])
        return scores


def describe_scores(scores: Mapping[str, Score], metrics: Sequence[Metric]) -> str:
    """The scores in a line."""
    return "  ".join(f"{metric.label()} {scores[metric.key()].value:.{metric.digits}f}" for metric in metrics)


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
