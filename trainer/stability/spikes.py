"""Loss spikes, detected by a score that is robust against outliers. Imports no torch."""

import math
import statistics
from dataclasses import dataclass

MAD_TO_SIGMA = 1.4826
"""Ratio of a normal distribution's standard deviation to its median absolute deviation."""
FLOOR = 0.01
"""Minimum deviation, as a fraction of the median, so that after a flat stretch a ripple is not a spike."""
MIN_HISTORY = 16
"""Number of losses needed before any can be a spike."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Spike:
    """A loss far above those before it."""

    loss: float
    median: float
    deviation: float
    """The robust deviation, with a floor; the unit of the score."""

    @property
    def score(self) -> float:
        """Deviations above the median."""
        return (self.loss - self.median) / self.deviation

    def __str__(self) -> str:
        return f"the loss {self.loss:.4f} is {self.score:.1f} deviations above the median {self.median:.4f}"


class SpikeDetector:
    """Checks every update's loss. Ranks that see the same losses decide the same."""

    def __init__(self, score: float, window: int, losses: list[float]) -> None:
        """Start with the losses seen so far.

        Args:
            score: a loss this many deviations above the median is a spike; 0 turns detection off.
            window: number of losses for median and deviation.
            losses: of the last updates, oldest first. Updated in place, so that it can be saved.
        """
        assert score >= 0
        assert window > 0
        self._score = score
        self._window = window
        self._losses = losses
        del losses[:-window]

    def observe(self, loss: float) -> Spike | None:
        """Check the next update's loss; a spike, or a loss that is not finite, is not added to the losses.

        Args:
            loss: mean over the update's target tokens.
        """
        if not math.isfinite(loss):  # such updates are skipped, and handled elsewhere
            return None
        spike = self._measure(loss) if self._score > 0 else None
        if spike is None or spike.score <= self._score:
            self._losses.append(loss)
            del self._losses[: -self._window]
            return None
        return spike

    def _measure(self, loss: float) -> Spike | None:
        """How far a loss is above those before it, be it a spike or not; None if these are too few to say."""
        if len(self._losses) < min(MIN_HISTORY, self._window):
            return None
        median = statistics.median(self._losses)
        mad = statistics.median(abs(x - median) for x in self._losses)
        deviation = max(MAD_TO_SIGMA * mad, FLOOR * abs(median), 1e-6)
        return Spike(loss=loss, median=median, deviation=deviation)
