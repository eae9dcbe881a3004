"""The base class of learning-rate schedules."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import ClassVar, Literal

from configs.components.registry import Component
from configs.fields import Count


@dataclasses.dataclass(kw_only=True, frozen=True)
class Schedule(Component):
    """The learning rate as a pure function of the number of applied updates: linear warm-up, then `factor` x peak."""

    warmup_updates: Count = 4000
    """Number of updates over which the learning rate grows linearly to its peak."""
    ends_with: Literal["updates", "epochs", "minutes"] = "updates"
    """When a schedule ends. updates: at `training.max_updates`; epochs or minutes: at `training.max_epochs` or
    `max_minutes`, if that comes first with as many updates in an epoch, or at the mean speed, as so far.
    """
    ends: ClassVar[bool] = False
    """Whether the schedule has an end, so that it depends on the number of the last update."""

    def end_problems(self, limits: Mapping[str, float | None], *, has_phases: bool) -> Iterator[str]:
        """What is wrong with `ends_with` of a run's schedule, one line each.

        Args:
            limits: of the run, by what they count.
            has_phases: whether the run has phases.
        """
        unit = self.ends_with
        if unit == "updates":
            return
        if limits[unit] is None:
            yield f"schedule.ends_with: {unit} without training.max_{unit}; set both, or ends_with: updates"
        if not self.ends:
            yield f"schedule.ends_with: {unit} with kind={self.kind}, which has no end; set it to updates"
        if unit == "epochs" and has_phases:
            yield "schedule.ends_with: epochs in a run with phases, each with epochs of its own; set it to updates"

    def rate(self, update: int, *, peak: float, last: int) -> float:
        """The learning rate of an update.

        Args:
            update: number of the update, counting from 1 and only updates that were applied.
            peak: the highest rate, reached at the end of the warm-up.
            last: number of the update at which a schedule that has an end reaches it.
        """
        if update <= self.warmup_updates:
            return peak * update / self.warmup_updates
        return peak * self.factor(update, last)

    def factor(self, update: int, last: int) -> float:
        """The learning rate after the warm-up, as a fraction of the peak; for the arguments see `rate`."""
        raise NotImplementedError

    def done(self, update: int, last: int) -> float:
        """The fraction of the updates after the warm-up that are done, from 0 to 1.

        Even without a warm-up, it is 0 at the first update, which has the peak rate.
        """
        begin = max(self.warmup_updates, 1)
        return min(max((update - begin) / max(last - begin, 1), 0.0), 1.0)
