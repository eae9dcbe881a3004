"""A score beside the best before it, in words."""

import math
from collections.abc import Mapping
from typing import NamedTuple

from configs import EvaluationSection
from configs.components.metric import OF_REFERENCES, Described
from configs.evaluation import QueuedMetric


class BesideBest(NamedTuple):
    """What is said of a score."""

    text: str | None
    """None where it is not finite."""
    is_best: bool


def beside_best(scores: Mapping[int, float], step: int, score: float, shown: Described) -> BesideBest:
    """A step's score beside the best of the other steps, the earliest of equals.

    Args:
        scores: by step; this step's and those that are not finite do not count.
        step: whose score it is.
        score: that it has.
        shown: how to show such scores, and whether higher is better.
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
    """How to show one of the figures that something can go by."""
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
    """How to show the scores of a metric that come late."""
    return Described(label=metric.name, higher_is_better=metric.higher_is_better, digits=metric.digits)
