"""A score in words, compared with the best one before it."""

import math
from collections.abc import Mapping
from typing import NamedTuple

from configs import EvaluationSection
from configs.components.training import OF_REFERENCES, Described
from configs.evaluation import QueuedMetric


class BesideBest(NamedTuple):
    """The words for a score."""

    text: str | None
    """None if the score is not finite."""
    is_best: bool


def beside_best(scores: Mapping[int, float], step: int, score: float, shown: Described) -> BesideBest:
    """A step's score compared with the best of the other steps; of equal scores the earliest counts.

    Args:
        scores: by step; this step's own and those that are not finite are ignored.
        step: the step of the score.
        score: the step's.
        shown: how to format such scores, and whether higher is better.
    """
    if not math.isfinite(score):
        return BesideBest(None, False)
    sign = -1 if shown.higher_is_better is False else 1
    others = {s: x for s, x in scores.items() if s != step and math.isfinite(x)}
    if not others:
        return BesideBest(f"the best {shown.label} so far", True)
    at = max(others, key=lambda s: (sign * others[s], -s))
    difference = f"{score - others[at]:+.{shown.digits}f}"
    if sign * score > sign * others[at]:
        return BesideBest(f"the best {shown.label} so far, {difference} to step {at}", True)
    return BesideBest(f"{shown.label} {difference} to the best, {others[at]:.{shown.digits}f} of step {at}", False)


def described(section: EvaluationSection, figure: str) -> Described:
    """How to format a figure by which the best step can be chosen."""
    known = {
        **OF_REFERENCES,
        **{
            m.key(): Described(label=m.label(), higher_is_better=m.higher_is_better, digits=m.digits)
            for m in section.metrics
        },
        **{m.name: of_queued(m) for m in section.queued},
    }
    return known[figure]


def of_queued(metric: QueuedMetric) -> Described:
    """How to format the scores of a queued metric, which come late."""
    return Described(label=metric.name, higher_is_better=metric.higher_is_better, digits=metric.digits)
