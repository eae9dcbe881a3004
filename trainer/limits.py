"""When a run ends, and at which rate it learns until then: the limits of the section `training`, and the schedule.

Limits are counted from the run's beginning or its last `--reset`.
"""

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from configs import RunConfig, Schedule, UserError
from trainer.checkpoint.state import PhaseState, TrainerState
from trainer.phases import next_is_due, no_better, phase_end, phase_of
from trainer.terminal.forecast import Forecast

Place = tuple[int, int]
"""An update's epoch, and its number in that, from 0."""
Unit = Literal["tokens", "epochs", "minutes"]

SURE_FRACTION = 0.1
"""Fraction of a limit after which the pace so far says where it ends the run."""
CUT_FRACTION = 0.9
"""Fraction of a schedule: a run that ends before it has cut the schedule short."""
MOST_RATES = 10_000
"""How many rates are looked at before the first update."""


@dataclass(slots=True, frozen=True)
class Limit:
    """A limit that is reached."""

    field: str
    reason: str
    """The reason for the end of the run."""
    advice: str
    """The message if there is nothing left to do."""


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
        return self._forecast.last_step

    @property
    def schedule(self) -> Schedule:
        """The phase's, if it has one of its own."""
        phase = phase_of(self._config, self._state)
        return self._config.schedule if phase is None or phase.schedule is None else phase.schedule

    @property
    def _own_phase(self) -> PhaseState | None:
        """The present phase, if it has a schedule of its own."""
        return None if self.schedule is self._config.schedule else self._state.phase

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
            now = self._position(self._state.step + 1)
        else:
            now = self._position(self._state.step) + target_tokens
        return checked_rate(self.schedule, now, self._config.optimizer.lr, last, self._followed())

    def _position(self, step: int) -> int:
        """What the schedule counts, up to the end of a step; tokens of steps to come are as many as in those so far."""
        state, phase = self._state, self._own_phase
        if self.schedule.counts == "updates":  # what was skipped does not count
            start = state.schedule_start if phase is None else max(state.schedule_start, phase.applied)
            return step - state.skipped_updates - start
        to_come = round((step - state.step) * self._tokens_an_update)
        return state.target_tokens + to_come - state.skipped_tokens - state.schedule_start_tokens

    @property
    def _tokens_an_update(self) -> float:
        """Mean of the target tokens of an update so far; before the first, the most that one can have."""
        if self._state.target_tokens:
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
        end, spans = self.schedule_end(self._state.seconds), list[tuple[Schedule, int, int]]()
        spans.append((self.schedule, min(self._position(self._state.step) + 1, end), end))
        for phase in self._config.phases:
            if phase.schedule is not None and phase.schedule is not self.schedule:
                spans.append((phase.schedule, 1, (phase.until and phase.until.updates) or self.last_step))
        for schedule, first, last in spans:
            for update in np.unique(np.linspace(first, last, min(MOST_RATES, last - first + 1)).astype(int)).tolist():
                checked_rate(schedule, max(update, 1), self._config.optimizer.lr, last)

    def schedule_end(self, seconds: float, step: int | None = None, place: Place | None = None) -> int:
        """The update, or the number of target tokens, at which the schedule ends, in the schedule's own count.

        Args:
            seconds: of the run, on whose clock all ranks agree.
            step: updates done by then; default: those done now.
            place: of the next update; without it, epochs end nothing.
        """
        state, schedule, phase, own = self._state, self.schedule, phase_of(self._config, self._state), self._own_phase
        ends = self._ends(seconds, state.step if step is None else step, place)
        last = min([self.last_step, *(end for unit, end in ends.items() if schedule.ends_by(unit))])
        if own is not None and phase is not None and phase.until is not None and phase.until.updates is not None:
            last = min(last, own.step + phase.until.updates)
        most = self._section.max_target_tokens
        if schedule.counts == "updates" or most is None or not schedule.ends_by("tokens"):
            return self._position(last)
        return min(self._position(last), self._position(state.step) + state.start_tokens + most - state.target_tokens)

    def _ends(self, seconds: float, step: int, place: Place | None) -> dict[Unit, int]:
        """The step at which each limit ends the run if it goes on as it has so far; arguments as of `schedule_end`."""
        state, section, ends = self._state, self._section, dict[Unit, int]()
        spent, done = seconds - state.start_seconds, step - state.start_step
        if section.max_minutes is not None and spent > 0 and done > 0:
            ends["minutes"] = step + round((60 * section.max_minutes - spent) * done / spent)
        if section.max_target_tokens is not None:
            left = state.start_tokens + section.max_target_tokens - state.target_tokens
            ends["tokens"] = state.step + math.ceil(left / self._tokens_an_update)
        if section.max_epochs is not None and place is not None:
            epoch, number = place
            if (updates := self._forecast.updates_an_epoch(epoch, number)) is not None:
                epochs = section.max_epochs + state.start_epoch - epoch
                ends["epochs"] = state.step + round(updates * epochs) - number
        return {unit: max(state.step + 1, end) for unit, end in ends.items()}

    def warning(self, place: Place) -> str | None:
        """A warning, given once, if a limit will end the run long before the end of its schedule.

        Args:
            place: of the next update.
        """
        state, schedule = self._state, self._config.schedule
        ends = self._ends(state.seconds, state.step, place)
        if self._has_warned or not ends or not schedule.ends or schedule is not self.schedule:
            return None
        unit, last = min(ends.items(), key=operator.itemgetter(1))
        begin, there = self._position(state.start_step), self._position(last)
        end = self.schedule_end(state.seconds, place=place)
        is_sure = state.step - state.start_step >= SURE_FRACTION * (last - state.start_step)
        self._has_warned = is_sure and there - begin < CUT_FRACTION * (end - begin)
        if not self._has_warned:
            return None
        field = "max_target_tokens" if unit == "tokens" else f"max_{unit}"
        return (
            f"training.{field}={getattr(self._section, field)} ends the run near step {last:,}, before its schedule: "
            f"the learning rate will be at {schedule.rate(there, peak=1.0, last=end):.0%} of its peak then; "
            f"schedule.ends_with={unit} brings it to its end"
        )

    def is_time_up(self) -> bool:
        """Whether `max_minutes` have passed on this rank's clock."""
        most, state = self._section.max_minutes, self._state
        return most is not None and state.seconds - state.start_seconds > 60 * most

    def is_over(self, epoch: int) -> bool:
        """Whether a limit but the minutes, of which ranks have clocks of their own, is reached; see `reached`."""
        return any(limit.field != "max_minutes" for limit in self.reached(epoch))

    def reached(self, epoch: int) -> list[Limit]:
        """The limits that forbid another update.

        Args:
            epoch: of the next update.
        """
        config, state = self._config, self._state
        since = f", counted from step {state.start_step:,}" if state.start_step else ""
        minutes = (state.seconds - state.start_seconds) / 60
        done = {
            "max_updates": state.step - state.start_step,
            "max_target_tokens": state.target_tokens - state.start_tokens,
            "max_epochs": epoch - state.start_epoch,
            "max_minutes": math.ceil(1000 * minutes) / 1000,  # above this there is time left
        }
        limits = []
        for field, number in done.items():
            most = getattr(self._section, field)
            if most is not None and number >= most:
                reason = f"training.{field}={f'{most:,}'.removesuffix('.0')}{since} is reached"
                more = f"{reason} at step {state.step:,}; training.{field} above {number} goes on"
                limits.append(Limit(field, reason, more))
        stopping = self._section.early_stopping
        if next_is_due(config, state, epoch) is not None:
            return limits
        if stopping is not None:  # it depends only on scores, so all ranks agree, also after a kill
            after = max(state.start_step + stopping.after, 0 if state.phase is None else state.phase.step)
            if (why := no_better(config, state, stopping, state.start_step, after)) is not None:
                reason = f"training.early_stopping: {why}"
                more = f"{reason}; a larger training.early_stopping.patience goes on"
                limits.append(Limit("early_stopping", reason, more))
        if (why := phase_end(config, state, epoch)) is not None:
            reason = f"phases: {why}, the last"
            limits.append(Limit("phases", reason, f"{reason}; a later until, or another phase, goes on"))
        return limits


class NothingToDo(Exception):  # noqa: N818 (no error)
    """The limits were reached in an earlier start, and everything of their step is done."""

    def __init__(self, limits: Sequence[Limit], *, step: int) -> None:
        super().__init__("nothing to do: " + "; ".join(limit.advice for limit in limits))
        self.reason = "; ".join(limit.reason for limit in limits)
        self.step = step
