"""The usual schedules: the peak for good, decays to the last update or by scores, and the original Transformer's."""

import math
from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field
from typing_extensions import override

from configs.components import Schedule, component
from configs.fields import Count, NonNegativeFloat, Positive

Ratio = Annotated[float, Field(ge=0, le=1)]


@component("schedule", "constant")
class Constant(Schedule):
    """The peak, for good."""

    @override
    def factor(self, update: int, last: int) -> float:
        return 1.0


@component("schedule", "cosine")
class Cosine(Schedule):
    """Half a cosine, without restarts (Loshchilov and Hutter, 2017)."""

    ends: ClassVar[bool] = True
    min_lr_ratio: Ratio = 0.0
    """What is left at the last update, as a fraction of the peak."""

    @override
    def factor(self, update: int, last: int) -> float:
        return above(self.min_lr_ratio, (1 + math.cos(math.pi * self.done(update, last))) / 2)


@component("schedule", "linear")
class Linear(Schedule):
    """A straight line down."""

    ends: ClassVar[bool] = True
    min_lr_ratio: Ratio = 0.0
    """What is left at the last update, as a fraction of the peak."""

    @override
    def factor(self, update: int, last: int) -> float:
        return above(self.min_lr_ratio, 1 - self.done(update, last))


@component("schedule", "wsd")
class WarmupStableDecay(Schedule):
    """Warm-up, the peak, and a decay at the end (Hu et al., 2024). The peak can be gone on with, or ended anywhere."""

    ends: ClassVar[bool] = True
    decay_updates: Count = 0
    """Number of updates of the decay; 0 makes it a fifth of all."""
    decay: Literal["sqrt", "linear"] = "sqrt"
    """Form of the decay: 1 - sqrt(t) (Hagele et al., 2024) or 1 - t, where t goes from 0 to 1."""
    min_lr_ratio: Ratio = 0.0
    """What is left at the last update, as a fraction of the peak."""

    @override
    def length_problem(self, most: int) -> str | None:
        warmup, decay = self.warmup_updates, self.decay_updates
        if warmup + decay <= most or warmup >= most:
            return super().length_problem(most)
        return f"decay_updates: {decay} after a warm-up of {warmup}; together no more than"

    @override
    def factor(self, update: int, last: int) -> float:
        length = self.decay_updates or max(last // 5, 1)
        done = min(max((update - last + length) / length, 0.0), 1.0)
        return above(self.min_lr_ratio, 1 - (math.sqrt(done) if self.decay == "sqrt" else done))


@component("schedule", "inverse_sqrt")
class InverseSqrt(Schedule):
    """Proportional to the inverse square root of the update's number (Vaswani et al., 2017, section 5.3)."""

    min_lr_ratio: Ratio = 0.0
    """Floor of the decay as a fraction of the peak."""

    @override
    def factor(self, update: int, last: int) -> float:
        return max(self.min_lr_ratio, math.sqrt(max(self.warmup_updates, 1) / update))


@component("schedule", "plateau")
class OnPlateau(Schedule):
    """The peak, lowered whenever a figure has not improved for some evaluations."""

    follows_scores: ClassVar[bool] = True
    metric: str | None = None
    """The name of one of `evaluation.metrics`, loss or nll; by default `checkpoint.best_by`."""
    patience: Positive = 3
    """Number of evaluations in a row that are not better than the best before the rate is lowered."""
    min_delta: NonNegativeFloat = 0.0
    """An improvement must be larger than this, in the figure's unit."""
    lower_by: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """What the rate is multiplied by each time."""
    min_lr_ratio: Ratio = 0.0
    """Floor as a fraction of the peak."""

    @override
    def rate(self, update: int, *, peak: float, last: int, scores: Sequence[float] = ()) -> float:
        """Lowered in the warm-up too, by its evaluations."""
        rate = super().rate(update, peak=peak, last=last)
        return max(rate * self.lower_by ** self.lowered(scores), min(rate, self.min_lr_ratio * peak))

    @override
    def factor(self, update: int, last: int) -> float:
        return 1.0

    def lowered(self, scores: Sequence[float]) -> int:
        """How often the rate has been lowered; a score that is not finite does not improve the figure."""
        best, waited, times = -math.inf, 0, 0
        for score in scores:
            if math.isfinite(score) and (best == -math.inf or score - best > self.min_delta):
                best, waited = score, 0
            else:
                waited += 1
            if waited == self.patience:
                times, waited = times + 1, 0
        return times


def above(floor: float, fraction: float) -> float:
    """A fraction of what is above the floor."""
    return floor + (1 - floor) * fraction
