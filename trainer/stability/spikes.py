"""Losses that jump: a robust score that one outlier does not move."""

import math
import statistics
from dataclasses import dataclass

MAD_TO_SIGMA = 1.4826
"""The deviation of a normal distribution over its median absolute deviation."""
FLOOR = 0.01
"""Least deviation, as a fraction of the median: after a flat stretch of losses a ripple must not count as a spike."""
MIN_HISTORY = 16
"""Losses that must have been seen before any is called a spike."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Spike:
    """A loss far above those before it."""

    loss: float
    median: float
    deviation: float
    """Robust, with a floor; the score's unit."""

    @property
    def score(self) -> float:
        """Deviations above the median."""
        return (self.loss - self.median) / self.deviation

    def __str__(self) -> str:
        return f"the loss {self.loss:.4f} is {self.score:.1f} deviations above the median {self.median:.4f}"


class SpikeDetector:
    """Looks at every update's loss. Every rank that sees the same losses decides the same."""

    def __init__(self, score: float, window: int, losses: list[float]) -> None:
        """Go on from the losses seen so far.

        Args:
            score: deviations above the median from which on a loss is a spike; 0 looks for none.
            window: losses that median and deviation are taken over.
            losses: of the last updates, oldest first. Kept up to date in place, for whoever saves it.
        """
        assert score >= 0
        assert window > 0
        self._score = score
        self._window = window
        self._losses = losses
        del losses[:-window]

    def observe(self, loss: float) -> Spike | None:
        """Look at the next update's loss; what is found to be a spike, or is not finite, is not remembered.

        Args:
            loss: mean over the update's target tokens.
        """
        if not math.isfinite(loss):  # such updates are skipped, which is another matter
            return None
        spike = self._spike(loss)
        if spike is None:
            self._losses.append(loss)
            del self._losses[: -self._window]
        return spike

    def _spike(self, loss: float) -> Spike | None:
        if self._score == 0 or len(self._losses) < min(MIN_HISTORY, self._window):
            return None
        median = statistics.median(self._losses)
        mad = statistics.median(abs(x - median) for x in self._losses)
        deviation = max(MAD_TO_SIGMA * mad, FLOOR * abs(median), 1e-6)
        spike = Spike(loss=loss, median=median, deviation=deviation)
        return spike if spike.score > self._score else None
