"""The usual schedules: the peak for good, decays until the last update, and that of the original Transformer."""

import math
from typing import Annotated, ClassVar

from pydantic import Field
from typing_extensions import override

from configs.components import Schedule, component


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
    min_lr_ratio: Annotated[float, Field(ge=0, le=1)] = 0.0
    """What is left at the last update, as a fraction of the peak."""

    @override
    def factor(self, update: int, last: int) -> float:
        fraction = (1 + math.cos(math.pi * self.done(update, last))) / 2
        return self.min_lr_ratio + (1 - self.min_lr_ratio) * fraction


@component("schedule", "linear")
class Linear(Schedule):
    """A straight line down."""

    ends: ClassVar[bool] = True
    min_lr_ratio: Annotated[float, Field(ge=0, le=1)] = 0.0
    """What is left at the last update, as a fraction of the peak."""

    @override
    def factor(self, update: int, last: int) -> float:
        fraction = 1 - self.done(update, last)
        return self.min_lr_ratio + (1 - self.min_lr_ratio) * fraction


@component("schedule", "inverse_sqrt")
class InverseSqrt(Schedule):
    """Proportional to the inverse square root of the update's number (Vaswani et al., 2017, section 5.3)."""

    min_lr_ratio: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Floor of the decay as a fraction of the peak."""

    @override
    def factor(self, update: int, last: int) -> float:
        return max(self.min_lr_ratio, math.sqrt(max(self.warmup_updates, 1) / update))
