"""When a run ends: the limits of the section `training`, counted from the run's beginning or its last `--reset`."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from configs import RunConfig
from trainer.checkpoint.state import TrainerState

SURE_FRACTION = 0.1
"""Fraction of the minutes after which the pace so far predicts where they end."""
CUT_FRACTION = 0.9
"""Fraction of a schedule's updates: a run that ends before it has cut the schedule short."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Limit:
    """A limit that is reached."""

    name: str
    """The field with its value, and from where it is counted."""
    reason: str
    """The reason for the end of the run."""
    advice: str
    """The message if there is nothing left to do."""

    def __str__(self) -> str:
        return self.name

    @classmethod
    def counted(cls, field: str, value: str, *, at: str, more: str) -> "Limit":
        """A limit on a number.

        Args:
            field: of the section `training`.
            value: the set value, and from where it is counted.
            at: where the run is.
            more: for the run to go on, the value must be above this.
        """
        name = f"training.{field}={value}"
        advice = f"{name} is reached {at}; training.{field} above {more} goes on"
        return cls(name=name, reason=f"{name} is reached", advice=advice)


def reasons(limits: Sequence[Limit]) -> str | None:
    """The reasons for the end of a run that limits ended."""
    return "; ".join(limit.reason for limit in limits) or None


@dataclass(kw_only=True, slots=True, frozen=True)
class Standstill:
    """A series of evaluations without an improvement."""

    num_evaluations: int
    best: float
    """The best score; NaN if there is none."""
    step: int
    """Of the best."""


def standstill(scores: Mapping[int, float], *, higher_is_better: bool, min_delta: float, after: int) -> Standstill:
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
    return Standstill(num_evaluations=waited, best=sign * best if math.isfinite(best) else math.nan, step=at)


class Limits:
    """A run's limits. After `--reset` they count from that step; step numbers go on."""

    def __init__(self, config: RunConfig, state: TrainerState) -> None:
        self._config = config
        self._section = config.training
        self._state = state
        self._has_warned = False

    @property
    def last_step(self) -> int:
        """The last update that `max_updates` allows."""
        return self._state.start_step + self._section.max_updates

    def schedule_end(self, seconds: float, step: int | None = None) -> int:
        """The update at which the schedule ends, in the schedule's own count.

        If the schedule ends with the clock, this is predicted from the mean pace so far.

        Args:
            seconds: of the run, on whose clock all ranks agree.
            step: updates done by then; default: those done now.
        """
        state, last = self._state, self.last_step
        if self._config.schedule.ends_with == "minutes":
            last = min(last, self._last_step_by_clock(seconds, state.step if step is None else step))
        return last - state.schedule_start

    def is_time_up(self) -> bool:
        """Whether `max_minutes` have passed."""
        minutes = self._section.max_minutes
        return minutes is not None and self._state.seconds - self._state.start_seconds > 60 * minutes

    def are_epochs_over(self, epoch: int) -> bool:
        """Whether `max_epochs` epochs are over before this one."""
        most = self._section.max_epochs
        return most is not None and epoch - self._state.start_epoch >= most

    def is_standing_still(self) -> Limit | None:
        """Early stopping, if it is due. It depends only on the scores, so all ranks agree, also after a kill."""
        section, state = self._section.early_stopping, self._state
        if section is None:
            return None
        figure = section.metric or self._config.best_by
        scores = {s: x for s, x in (state.scores_of(figure) or {}).items() if s > state.start_step}
        found = standstill(
            scores,
            higher_is_better=self._config.evaluation.directions[figure],
            min_delta=section.min_delta,
            after=state.start_step + section.after,
        )
        if found.num_evaluations < section.patience:
            return None
        by = f" by more than {section.min_delta:g}" if section.min_delta else ""
        reason = (
            f"training.early_stopping: no {figure} better{by} than {found.best:.4g} of step {found.step:,} in "
            f"{found.num_evaluations} evaluations"
        )
        advice = f"{reason}; training.early_stopping.patience above {found.num_evaluations} goes on"
        return Limit(name="training.early_stopping", reason=reason, advice=advice)

    def reached(self, epoch: int) -> list[Limit]:
        """The limits that forbid another update.

        Args:
            epoch: of the next update.
        """
        section, state = self._section, self._state
        counted = f", counted from step {state.start_step:,}" if state.start_step else ""
        found = []
        if state.step >= self.last_step:
            value, done = f"{section.max_updates:,}{counted}", state.step - state.start_step
            found.append(Limit.counted("max_updates", value, at=f"at step {state.step:,}", more=f"{done}"))
        if self.are_epochs_over(epoch):
            value, done = f"{section.max_epochs}{counted}", epoch - state.start_epoch
            found.append(Limit.counted("max_epochs", value, at=f"at step {state.step:,}", more=f"{done}"))
        if self.is_time_up():
            spent = math.ceil((state.seconds - state.start_seconds) / 60 * 1000) / 1000  # above this there is time left
            value = f"{section.max_minutes:g}{counted}"
            at = f"after {spent:.3f} minutes, at step {state.step:,}"
            found.append(Limit.counted("max_minutes", value, at=at, more=f"{spent:.3f}"))
        if (limit := self.is_standing_still()) is not None:
            found.append(limit)
        return found

    def clock_warning(self) -> str | None:
        """A warning, given once, if the clock will end the run long before the end of its schedule."""
        state, minutes, schedule = self._state, self._section.max_minutes, self._config.schedule
        if self._has_warned or minutes is None or not schedule.ends or schedule.ends_with == "minutes":
            return None
        if state.seconds - state.start_seconds < SURE_FRACTION * 60 * minutes:
            return None
        last = self._last_step_by_clock(state.seconds, state.step)
        if last - state.start_step >= CUT_FRACTION * self._section.max_updates:
            return None
        self._has_warned = True
        update = last - state.skipped_updates - state.schedule_start
        fraction = schedule.rate(update, peak=1.0, last=self.schedule_end(state.seconds))
        return (
            f"training.max_minutes={minutes:g} ends the run near step {last:,}, and the schedule is made for "
            f"{self.last_step:,}: the learning rate will be at {fraction:.0%} of its peak then; "
            "schedule.ends_with=minutes brings it to its end with the clock"
        )

    def _last_step_by_clock(self, seconds: float, step: int) -> int:
        """The step that the mean pace since limits count reaches within `max_minutes`; at least the next one."""
        state, minutes = self._state, self._section.max_minutes
        assert minutes is not None
        spent, done = seconds - state.start_seconds, step - state.start_step
        if spent <= 0 or done <= 0:
            return self.last_step
        return max(state.step + 1, step + round((60 * minutes - spent) * done / spent))

    def figures(self) -> dict[str, Any]:
        """Where limits are counted from, for the run's metrics; empty if that is step 0."""
        state = self._state
        if not state.start_step:
            return {}
        return {"limits_from": {"step": state.start_step, "seconds": round(state.start_seconds, 3)}}

    def describe(self) -> str | None:
        """The log line at a start if limits are not counted from step 0."""
        if not self._state.start_step:
            return None
        section = self._section
        named = [f"{section.max_updates:,} updates"]
        named += [f"{section.max_epochs} epochs"] if section.max_epochs is not None else []
        named += [f"{section.max_minutes:g} minutes"] if section.max_minutes is not None else []
        return f"limit {', '.join(named)}, counted from step {self._state.start_step:,}"


class NothingToDo(Exception):  # noqa: N818 (no error)
    """The limits were reached in an earlier start, and everything of their step is done."""

    def __init__(self, limits: Sequence[Limit], *, step: int) -> None:
        super().__init__("nothing to do: " + "; ".join(limit.advice for limit in limits))
        self.reason = "; ".join(limit.reason for limit in limits)
        self.step = step
