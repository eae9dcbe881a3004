"""The base class of learning-rate schedules."""

import dataclasses
from typing import ClassVar, Literal

from configs.components.registry import Component
from configs.fields import Count


@dataclasses.dataclass(kw_only=True, frozen=True)
class Schedule(Component):
    """The learning rate as a pure function of applied updates: a linear warm-up, then `factor` of the peak."""

    warmup_updates: Count = 4000
    """Number of updates over which the rate grows linearly to its peak."""
    ends_with: Literal["updates", "minutes"] = "updates"
    """Which limit a schedule ends with: `training.max_updates`, or `training.max_minutes` if that comes first at the
    mean pace so far.
    """
    ends: ClassVar[bool] = False
    """Whether it ends at the last update, and so depends on its number."""

    def rate(self, update: int, *, peak: float, last: int) -> float:
        """The rate of an update.

        Args:
            update: its number, from 1, counting those that were applied.
            peak: the highest rate, reached at the end of the warm-up.
            last: number of the last update, at which a schedule that ends has its end.
        """
        if update <= self.warmup_updates:
            return peak * update / self.warmup_updates
        return peak * self.factor(update, last)

    def factor(self, update: int, last: int) -> float:
        """The factor of the peak after the warm-up; for the arguments see `rate`."""
        raise NotImplementedError

    def done(self, update: int, last: int) -> float:
        """The fraction of updates after the warm-up that are done, from 0 to 1.

        Without a warm-up the first update still runs at the peak.
        """
        begin = max(self.warmup_updates, 1)
        return min(max((update - begin) / max(last - begin, 1), 0.0), 1.0)
