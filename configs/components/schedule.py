"""What a schedule of the learning rate is."""

import dataclasses
from typing import ClassVar, Literal

from configs.components.registry import Component
from configs.fields import Count


@dataclasses.dataclass(kw_only=True, frozen=True)
class Schedule(Component):
    """The learning rate as a pure function of applied updates: a linear warm-up, then `factor` of the peak."""

    warmup_updates: Count = 4000
    """The rate grows linearly to its peak over so many updates."""
    ends_with: Literal["updates", "minutes"] = "updates"
    """What a schedule that ends comes to its end with: `training.max_updates`, or `training.max_minutes` if that is
    sooner, at the mean pace so far."""
    ends: ClassVar[bool] = False
    """Whether it comes to its end at the last update, and so depends on which that is."""

    def rate(self, update: int, *, peak: float, last: int) -> float:
        """The rate of an update.

        Args:
            update: its number, from 1, counting those that were applied.
            peak: the highest rate, reached at the end of the warm-up.
            last: number of the last update, where a schedule that ends does.
        """
        if update <= self.warmup_updates:
            return peak * update / self.warmup_updates
        return peak * self.factor(update, last)

    def factor(self, update: int, last: int) -> float:
        """What the peak is multiplied by after the warm-up; arguments as of `rate`."""
        raise NotImplementedError

    def done(self, update: int, last: int) -> float:
        """The fraction of the updates after the warm-up that is done, from 0 to 1.

        The first update after the warm-up still runs at the peak where there was none.
        """
        begin = max(self.warmup_updates, 1)
        return min(max((update - begin) / max(last - begin, 1), 0.0), 1.0)
