"""For how long a figure of the evaluations has not become better: early stopping, and phases until a plateau."""

import math
from collections.abc import Mapping
from dataclasses import dataclass


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
