"""A score in words, compared with the best one before it, and for how long a figure has not become better."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from configs import EvaluationSection, RunConfig
from configs.components.training import OF_REFERENCES, Described
from trainer.checkpoint.state import TrainerState


def beside_best(scores: Mapping[int, float], step: int, score: float, shown: Described) -> str | None:
    """A step's score compared with the best of the other steps, in words; of equal scores the earliest counts.

    Args:
        scores: by step; this step's own and those that are not finite are ignored.
        step: the step of the score.
        score: the step's; there are no words for one that is not finite.
        shown: how to format such scores, and whether higher is better.
    """
    if not math.isfinite(score):
        return None
    sign = -1 if shown.higher_is_better is False else 1
    others = {s: x for s, x in scores.items() if s != step and math.isfinite(x)}
    if not others:
        return f"the best {shown.label} so far"
    at = max(others, key=lambda s: (sign * others[s], -s))
    difference = f"{score - others[at]:+.{shown.digits}f}"
    if sign * score > sign * others[at]:
        return f"the best {shown.label} so far, {difference} to step {at}"
    return f"{shown.label} {difference} to the best, {others[at]:.{shown.digits}f} of step {at}"


def described(section: EvaluationSection, figure: str) -> Described:
    """How to format a figure by which the best step can be chosen."""
    for metric in section.all_metrics:
        if metric.key() == figure:
            return Described(label=metric.label(), higher_is_better=metric.higher_is_better, digits=metric.digits)
    return OF_REFERENCES[figure]


def last_and_best(config: RunConfig, state: TrainerState) -> tuple[str | None, str | None]:
    """The last of the scores that decide which step is best, and the best of them, in words; None if there are none."""
    scores = state.signed_scores()
    if not scores or config.best_by not in config.evaluation.directions:
        return None, None
    shown = described(config.evaluation, config.best_by)
    steps = max(scores), max(scores, key=lambda step: (scores[step], -step))
    last, best = (f"{shown.label} {state.best_scores[step]:.{shown.digits}f} at step {step:,}" for step in steps)
    return last, best


@dataclass(kw_only=True, slots=True, frozen=True)
class Plateau:
    """A series of evaluations without an improvement."""

    num_evaluations: int
    best: float
    """The best score; NaN if there is none."""
    step: int
    """Step of the best score."""

    @property
    def evaluations(self) -> str:
        """Their number, in words."""
        return f"{self.num_evaluations} evaluation{'s' * (self.num_evaluations != 1)}"


def current_plateau(scores: Mapping[int, float], *, higher_is_better: bool, min_delta: float, after: int) -> Plateau:
    """How long a figure has not improved; a score that is not finite is no improvement.

    Args:
        scores: by step.
        higher_is_better: of the figure.
        min_delta: an improvement must be larger than this.
        after: only evaluations of later steps count.
    """
    sign = 1 if higher_is_better else -1
    best, at, waited = -math.inf, 0, 0
    for step in sorted(scores):
        merit = sign * scores[step]
        if math.isfinite(merit) and (best == -math.inf or merit - best > min_delta):
            best, at, waited = merit, step, 0
        elif step > after:
            waited += 1
    return Plateau(num_evaluations=waited, best=sign * best if math.isfinite(best) else math.nan, step=at)
