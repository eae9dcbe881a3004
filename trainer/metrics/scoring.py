"""The scores of translations by several metrics, each with its signature."""

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from configs.components import Metric, ScoredText, Scoring
from configs.errors import UserError

log = logging.getLogger(__name__)


@dataclass(kw_only=True, slots=True, frozen=True)
class Score:
    """A corpus score."""

    value: float
    """NaN where the metric failed."""
    signature: str
    """Scores of one signature may be compared."""


class Scorer:
    """Scores translations of one text, cased and detokenised, by several metrics."""

    def __init__(self, metrics: Sequence[Metric], text: ScoredText, *, num_references: int = 1) -> None:
        """Find out whether all of them work.

        Args:
            metrics: whose figures have different names.
            text: what is to be scored.
            num_references: of each sentence.

        Raises:
            UserError: a metric cannot be computed here.
        """
        self.metrics = list(metrics)
        self._scorings = [metric.build(text) for metric in metrics]
        self.signatures: dict[str, str] = {}
        """By the names of the figures."""
        for metric, scoring in zip(self.metrics, self._scorings, strict=True):
            try:  # only what has scored has a signature
                metric.score(scoring, sources=["a"], hypotheses=["a"], references=[["a"]] * num_references)
                self.signatures[metric.key()] = str(scoring.get_signature())
            except Exception as error:
                raise UserError(f"evaluation.metrics: {metric.key()} cannot be used: {_said(error)}") from error

    @property
    def scorings(self) -> dict[str, Scoring]:
        """What computes each metric, by the names of the figures."""
        return {metric.key(): scoring for metric, scoring in zip(self.metrics, self._scorings, strict=True)}

    def score(
        self, sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[Sequence[str]]
    ) -> dict[str, Score]:
        """Corpus scores by the names of their figures. A metric that fails has no score, and the log says why.

        Args:
            sources: what was translated.
            hypotheses: its translations.
            references: as many of each as was said, as lists of lines.

        Raises:
            UserError: the counts differ, or there is nothing to score.
        """
        for lines in references:
            if len(hypotheses) != len(lines):
                raise UserError(
                    f"evaluation: {len(hypotheses)} translations beside {len(lines)} references; both must have as many"
                )
        if not hypotheses:
            raise UserError("evaluation: no sentences; give at least one")
        found = {}
        for metric, scoring in zip(self.metrics, self._scorings, strict=True):
            try:
                value = metric.score(scoring, sources=sources, hypotheses=hypotheses, references=references)
            except Exception as error:  # whatever it is: a score is no reason to end a run
                log.warning("evaluation: %s has no score: %s", metric.label(), _said(error))
                value = math.nan
            found[metric.key()] = Score(value=value, signature=self.signatures[metric.key()])
        return found

    def doubts(self, references: Sequence[Sequence[str]]) -> Iterator[str]:
        """Why some of the scores would say little."""
        for metric, scoring in zip(self.metrics, self._scorings, strict=True):
            if (doubt := metric.doubt(scoring, references)) is not None:
                yield doubt


def describe_scores(scores: Mapping[str, Score], metrics: Sequence[Metric]) -> str:
    """The scores in a line."""
    return "  ".join(f"{metric.label()} {scores[metric.key()].value:.{metric.digits}f}" for metric in metrics)


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
