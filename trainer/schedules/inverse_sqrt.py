"""The schedule of the original Transformer."""

import math
from typing import Annotated

from pydantic import Field
from typing_extensions import override

from configs.components import Schedule, component


@component("schedule", "inverse_sqrt")
class InverseSqrt(Schedule):
    """Proportional to the inverse square root of the update's number (Vaswani et al., 2017, section 5.3)."""

    min_lr_ratio: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Floor of the decay as a fraction of the peak."""

    @override
    def factor(self, update: int, last: int) -> float:
        return max(self.min_lr_ratio, math.sqrt(max(self.warmup_updates, 1) / update))
