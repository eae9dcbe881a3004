"""When a run ends: the limits of the section `training`, counted from the run's beginning or its last `--reset`."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from configs import RunConfig, Schedule, UserError
from trainer.checkpoint.state import PhaseState, TrainerState
from trainer.evaluation.best import current_plateau
from trainer.phase import has_next, phase_end, phase_of, plateau
from trainer.terminal.forecast import Forecast

Place = tuple[int, int]
"""An update's epoch, and its number in that, from 0."""

SURE_FRACTION = 0.1
"""Fraction of the minutes after which the pace so far predicts where they end."""
MOST_RATES = 10_000
"""How many rates are looked at before the first update."""
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


def checked_rate(schedule: Schedule, update: int, peak: float, last: int, scores: Sequence[float] = ()) -> float:
    """`schedule.rate`.

    Raises:
        UserError: it cannot be computed, or is not finite, or negative.
    """
    try:
        followed = {"scores": scores} if schedule.follows_scores else {}
        rate = schedule.rate(update, peak=peak, last=last, **followed)
        if 0 <= rate < math.inf:
            return rate
        problem = f"is {rate}"
    except Exception as error:
        problem = f"cannot be computed: {type(error).__name__}: {error}"
    raise UserError(
        f"schedule: {schedule.kind}: the learning rate of update {update:,} of {last:,} {problem}; allowed is a number "
        "from 0 on"
    )


class Limits:
    """A run's limits. After `--reset` they count from that step; step numbers go on."""

    def __init__(self, config: RunConfig, state: TrainerState, forecast: Forecast | None = None) -> None:
        """Look at a run.

        Args:
            config: the run's.
            state: of the run; it is updated by the trainer.
            forecast: knows how many updates an epoch has; without it a schedule cannot end with the epochs.
        """
        self._config = config
        self._section = config.training
        self._state = state
        self._forecast = forecast or Forecast(config, state)
        self._has_warned = False

    @property
    def last_step(self) -> int:
        """The last update that `max_updates` allows."""
        return self._state.start_step + self._section.max_updates

    @property
    def schedule(self) -> Schedule:
        """The phase's, if it has one of its own."""
        phase = phase_of(self._config, self._state)
        return self._config.schedule if phase is None or phase.schedule is None else phase.schedule

    @property
    def _own_phase(self) -> PhaseState | None:
        """The present phase, if it has a schedule of its own."""
        return None if self.schedule is self._config.schedule else self._state.phase

    @property
    def schedule_start(self) -> int:
        """Applied updates before its first."""
        start, phase = self._state.schedule_start, self._own_phase
        return start if phase is None else max(start, phase.applied)

    def rate(self, seconds: float, step: int, place: Place | None = None, *, target_tokens: int | None = None) -> float:
        """The learning rate of the next update, of so many tokens; other arguments as of `schedule_end`."""
        return self.rate_if_ending(self.schedule_end(seconds, step, place), target_tokens)

    def rate_if_ending(self, last: int, target_tokens: int | None = None) -> float:
        """The learning rate of the next update, given the end of the schedule, as `schedule_end` counts.

        Args:
            last: that end.
            target_tokens: of the next update; by default as many as in the others.
        """
        if self.schedule.counts == "updates" or target_tokens is None:
            place = self._position(self._state.step + 1)
        else:
            place = self._position(self._state.step) + target_tokens
        return checked_rate(self.schedule, place, self._config.optimizer.lr, last, self._followed())

    def _position(self, step: int) -> int:
        """What the schedule counts, up to the end of a step; tokens of steps to come are as many as in those so far."""
        state = self._state
        if self.schedule.counts == "updates":
            return step - state.skipped_updates - self.schedule_start  # what was skipped does not count
        to_come = round((step - state.step) * self._tokens_an_update)
        return state.target_tokens + to_come - state.skipped_tokens - state.schedule_start_tokens

    @property
    def _tokens_an_update(self) -> float:
        """Mean of the target tokens of an update so far; before the first, the most that one can have."""
        if self._state.step:
            return self._state.target_tokens / self._state.step
        return self._config.stream.target_tokens * self._config.stream.micro_batches

    def _followed(self) -> list[float]:
        """The scores that the schedule follows; see `Schedule.rate`."""
        if not self.schedule.follows_scores:
            return []
        figure, phase = self._config.followed_by(self.schedule), self._own_phase
        after = max(self._state.start_step, 0 if phase is None else phase.step)
        scores = self._state.planned_scores(figure, after=after)
        sign = 1 if self._config.evaluation.directions[figure] else -1
        return [sign * scores[step] for step in sorted(scores)]

    def check_rates(self) -> None:
        """Look at the rates of the updates to come, and of other phases' schedules: at both ends and evenly between.

        Raises:
            UserError: see `checked_rate`.
        """
        end = self.schedule_end(self._state.seconds)
        first = self._position(self._state.step) + 1
        spans = [(self.schedule, min(first, end), end)]
        for phase in self._config.phases:
            if phase.schedule is not None and phase.schedule is not self.schedule:
                updates = None if phase.until is None else phase.until.updates
                spans.append((phase.schedule, 1, updates or self.last_step))
        for schedule, first, last in spans:
            for update in dict.fromkeys(
                np.linspace(first, last, min(MOST_RATES, last - first + 1)).astype(int).tolist()
            ):
                checked_rate(schedule, max(update, 1), self._config.optimizer.lr, last)

    def schedule_end(self, seconds: float, step: int | None = None, place: Place | None = None) -> int:
        """The update, or the number of target tokens, at which the schedule ends, in the schedule's own count.

        If the schedule ends with the clock, this is predicted from the mean pace so far; if with the epochs, from those
        that are over, and in the first from an estimate; between tokens and updates, from the mean so far.

        Args:
            seconds: of the run, on whose clock all ranks agree.
            step: updates done by then; default: those done now.
            place: of the next update; without it, epochs end nothing.
        """
        state, last, phase = self._state, self.last_step, phase_of(self._config, self._state)
        if self.schedule.ends_by("minutes") and self._section.max_minutes is not None:
            last = min(last, self._last_step_by_clock(seconds, state.step if step is None else step))
        if self.schedule.ends_by("epochs") and place is not None:
            last = min(last, self._last_step_by_epochs(place))
        tokens = self._section.max_target_tokens if self.schedule.ends_by("tokens") else None
        if self.schedule.counts == "tokens":
            predicted = self._position(last)
            if tokens is None:
                return predicted
            return min(predicted, self._position(state.step) + state.start_tokens + tokens - state.target_tokens)
        if tokens is not None:
            last = min(last, self._last_step_by_tokens(tokens))
        if phase is not None and phase.schedule is not None and state.phase is not None:
            updates = None if phase.until is None else phase.until.updates
            last = min(last, state.phase.step + (updates or last))
        return self._position(last)

    def is_time_up(self) -> bool:
        """Whether `max_minutes` have passed."""
        minutes = self._section.max_minutes
        return minutes is not None and self._state.seconds - self._state.start_seconds > 60 * minutes

    def are_tokens_over(self) -> bool:
        """Whether `max_target_tokens` were trained on."""
        most = self._section.max_target_tokens
        return most is not None and self._state.target_tokens - self._state.start_tokens >= most

    def are_epochs_over(self, epoch: int) -> bool:
        """Whether `max_epochs` epochs are over before this one."""
        most = self._section.max_epochs
        return most is not None and epoch - self._state.start_epoch >= most

    def is_over(self, epoch: int) -> bool:
        """Whether the data or the scores leave nothing to do; arguments as of `reached`."""
        if self.are_tokens_over() or self.are_epochs_over(epoch):
            return True
        return bool(self.is_standing_still() or self._are_phases_over(epoch))

    def _are_phases_over(self, epoch: int) -> Limit | None:
        """Where the last phase has an end, and that is reached."""
        why = None if has_next(self._config, self._state) else phase_end(self._config, self._state, epoch)
        if why is None:
            return None
        reason = f"phases: {why}, the last"
        return Limit(name="phases", reason=reason, advice=f"{reason}; a later until, or another phase, goes on")

    def is_standing_still(self) -> Limit | None:
        """Early stopping, if it is due. It depends only on the scores, so all ranks agree, also after a kill.

        In a run with phases only evaluations of the present one count, and the next phase, if one is due, comes first.
        """
        section, state = self._section.early_stopping, self._state
        if section is None or (has_next(self._config, state) and plateau(self._config, state) is not None):
            return None
        figure = section.metric or self._config.best_by
        scores = state.planned_scores(figure, after=state.start_step)
        stalled = current_plateau(
            scores,
            higher_is_better=self._config.evaluation.directions[figure],
            min_delta=section.min_delta,
            after=max(state.start_step + section.after, 0 if state.phase is None else state.phase.step),
        )
        if stalled.num_evaluations < section.patience:
            return None
        by = f" by more than {section.min_delta:g}" if section.min_delta else ""
        reason = (
            f"training.early_stopping: no {figure} better{by} than {stalled.best:.4g} of step {stalled.step:,} in "
            f"{stalled.evaluations}"
        )
        advice = f"{reason}; training.early_stopping.patience above {stalled.num_evaluations} goes on"
        return Limit(name="training.early_stopping", reason=reason, advice=advice)

    def reached(self, epoch: int) -> list[Limit]:
        """The limits that forbid another update.

        Args:
            epoch: of the next update.
        """
        section, state = self._section, self._state
        counted = f", counted from step {state.start_step:,}" if state.start_step else ""
        limits = []
        if state.step >= self.last_step:
            value, done = f"{section.max_updates:,}{counted}", state.step - state.start_step
            limits.append(Limit.counted("max_updates", value, at=f"at step {state.step:,}", more=f"{done}"))
        if self.are_tokens_over():
            value, done = f"{section.max_target_tokens:,}{counted}", state.target_tokens - state.start_tokens
            limits.append(Limit.counted("max_target_tokens", value, at=f"at step {state.step:,}", more=f"{done}"))
        if self.are_epochs_over(epoch):
            value, done = f"{section.max_epochs}{counted}", epoch - state.start_epoch
            limits.append(Limit.counted("max_epochs", value, at=f"at step {state.step:,}", more=f"{done}"))
        if self.is_time_up():
            spent = math.ceil((state.seconds - state.start_seconds) / 60 * 1000) / 1000  # above this there is time left
            value = f"{section.max_minutes:g}{counted}"
            at = f"after {spent:.3f} minutes, at step {state.step:,}"
            limits.append(Limit.counted("max_minutes", value, at=at, more=f"{spent:.3f}"))
        limits += [limit for limit in (self.is_standing_still(), self._are_phases_over(epoch)) if limit is not None]
        return limits

    def clock_warning(self, place: Place | None = None) -> str | None:
        """A warning, given once, if the clock or the tokens will end the run long before the end of its schedule."""
        if self._has_warned:
            return None
        state, minutes, tokens = self._state, self._section.max_minutes, self._section.max_target_tokens
        warning = None
        if minutes is not None and state.seconds - state.start_seconds >= SURE_FRACTION * 60 * minutes:
            last = self._last_step_by_clock(state.seconds, state.step)
            remedy = "schedule.ends_with=minutes brings it to its end with the clock"
            warning = self._cut(f"training.max_minutes={minutes:g} ends", last, "minutes", remedy, place)
        if (
            warning is None
            and tokens is not None
            and state.target_tokens - state.start_tokens >= SURE_FRACTION * tokens
        ):
            last = self._last_step_by_tokens(tokens)
            remedy = "schedule.ends_with=tokens brings it to its end with them"
            warning = self._cut(f"training.max_target_tokens={tokens} ends", last, "tokens", remedy, place)
        self._has_warned = warning is not None
        return warning

    def early_ends(self, place: Place) -> Iterator[str]:
        """Warnings of what is known at a start to end the run long before the end of its schedule.

        Args:
            place: of the next update.
        """
        epochs = self._section.max_epochs
        if epochs is not None and self._forecast.updates_an_epoch(*place) is not None:
            last = self._last_step_by_epochs(place)
            remedy = "schedule.ends_with=epochs brings it to its end with them"
            yield from filter(None, [self._cut(f"training.max_epochs={epochs} ends", last, "epochs", remedy, place)])
        updates = [None if phase.until is None else phase.until.updates for phase in self._config.phases]
        if updates and None not in updates:
            total = sum(filter(None, updates))
            remedy = f"training.max_updates={total} brings it to its end with them"
            yield from filter(None, [self._cut("phases end", self._state.start_step + total, None, remedy, place)])

    def _cut(
        self,
        what: str,
        last: int,
        unit: Literal["tokens", "epochs", "minutes"] | None,
        remedy: str,
        place: Place | None,
    ) -> str | None:
        """The warning if a run that ends at a step cuts its schedule short, and the schedule does not end with that."""
        state, schedule = self._state, self._config.schedule
        is_met = unit is not None and schedule.ends_by(unit)
        if not schedule.ends or is_met or schedule is not self.schedule:  # or a phase has its own
            return None
        end, there = self.schedule_end(state.seconds, place=place), self._position(last)
        begin = self._position(state.start_step)
        if there - begin >= CUT_FRACTION * (end - begin):
            return None
        made_for = f"{end:,} target tokens" if schedule.counts == "tokens" else f"{end + last - there:,}"
        return (
            f"{what} the run near step {last:,}, and the schedule is made for {made_for}: the learning rate will "
            f"be at {schedule.rate(there, peak=1.0, last=end):.0%} of its peak then; {remedy}"
        )

    def _last_step_by_tokens(self, most: int) -> int:
        """The step that ends with so many tokens, if updates have as many as so far; at least the next one."""
        left = self._state.start_tokens + most - self._state.target_tokens
        return self._state.step + max(1, math.ceil(left / self._tokens_an_update))

    def _last_step_by_epochs(self, place: Place) -> int:
        """The step at which `max_epochs` are over; at least the next one."""
        state, most, updates = self._state, self._section.max_epochs, self._forecast.updates_an_epoch(*place)
        if most is None or updates is None:
            return self.last_step
        epoch, done = place
        return max(state.step + 1, state.step + round(updates * (most - epoch + state.start_epoch)) - done)

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
        since = {
            "step": state.start_step,
            "target_tokens": state.start_tokens,
            "seconds": round(state.start_seconds, 3),
        }
        return {"limits_from": since}

    def describe(self) -> str | None:
        """The log line at a start if limits are not counted from step 0."""
        if not self._state.start_step:
            return None
        section = self._section
        named = [f"{section.max_updates:,} updates"]
        named += [f"{section.max_target_tokens:,} target tokens"] if section.max_target_tokens is not None else []
        named += [f"{section.max_epochs} epochs"] if section.max_epochs is not None else []
        named += [f"{section.max_minutes:g} minutes"] if section.max_minutes is not None else []
        return f"limit {', '.join(named)}, counted from step {self._state.start_step:,}"


class NothingToDo(Exception):  # noqa: N818 (no error)
    """The limits were reached in an earlier start, and everything of their step is done."""

    def __init__(self, limits: Sequence[Limit], *, step: int) -> None:
        super().__init__("nothing to do: " + "; ".join(limit.advice for limit in limits))
        self.reason = "; ".join(limit.reason for limit in limits)
        self.step = step
