"""When a run ends, how far it has come, and at which rate it learns: the limits of `training`, and the schedule.

Limits are counted from the run's beginning or its last `--reset`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tqdm import tqdm

from configs import RunConfig, Schedule, UserError
from trainer.checkpoint.state import PhaseState, TrainerState
from trainer.phases import next_is_due, no_better, phase_end, phase_of


@dataclass(slots=True, frozen=True)
class Limit:
    """A limit that is reached."""

    field: str
    reason: str
    """The reason for the end of the run."""
    advice: str
    """The message if there is nothing left to do."""


class NothingToDo(Exception):  # noqa: N818 (no error)
    """The limits were reached in an earlier start, and everything of their step is done."""

    def __init__(self, limits: Sequence[Limit], *, step: int) -> None:
        super().__init__("nothing to do: " + "; ".join(limit.advice for limit in limits))
        self.reason = "; ".join(limit.reason for limit in limits)
        self.step = step


@dataclass(kw_only=True, slots=True, frozen=True)
class Outlook:
    """How far a run has come. Early stopping, which cannot be predicted, may end it earlier."""

    fraction: float
    """Fraction done of the nearest limit, 0 to 1."""
    share: str
    """The same in words, after the updates done: `67 updates, 02:46 of 10:00`."""
    seconds_left: float | None
    """Seconds to the nearest limit at this start's mean pace, with evaluations and saves; None before an update."""
    seconds_per_update: float | None

    def __str__(self) -> str:
        done = f"{self.fraction:.1%} done"
        return done if self.seconds_left is None else f"{done}  {interval(self.seconds_left)} left"


def interval(seconds: float) -> str:
    """Seconds as [hours:]minutes:seconds."""
    return str(tqdm.format_interval(seconds))


class Limits:
    """A run's limits. After `--reset` they count from that step; step numbers continue."""

    def __init__(self, config: RunConfig, state: TrainerState, *, updates_an_epoch: float | None = None) -> None:
        """Look at a run, and start measuring its pace.

        Args:
            config: the run's.
            state: of the run; it is updated by the trainer.
            updates_an_epoch: an estimate, replaced by the true count once an epoch is over; None if not known.
        """
        self._config = config
        self._section = config.training
        self._state = state
        self._first_step, self._first_second = state.step, state.seconds
        self._estimate = updates_an_epoch

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

    def rate(self, seconds: float, step: int) -> float:
        """The learning rate of the next update; for the arguments see `schedule_end`.

        Raises:
            UserError: it cannot be computed, or is not finite, or negative.
        """
        schedule, update, last = self.schedule, self._position(self._state.step + 1), self.schedule_end(seconds, step)
        followed = {"scores": self._followed()} if schedule.follows_scores else {}
        try:
            rate = schedule.rate(update, peak=self._config.optimizer.lr, last=last, **followed)
            if 0 <= rate < math.inf:
                return rate
            problem = f"is {rate}"
        except Exception as error:
            problem = f"cannot be computed: {type(error).__name__}: {error}"
        raise UserError(
            f"schedule: {schedule.kind}: the learning rate of update {update:,} of {last:,} {problem}; allowed is a "
            "number from 0 on"
        )

    def _position(self, step: int) -> int:
        """Updates that the schedule counts up to the end of a step; what was skipped does not count."""
        state, phase = self._state, self._own_phase
        start = state.schedule_start if phase is None else max(state.schedule_start, phase.applied)
        return step - state.skipped_updates - start

    def _updates_an_epoch(self, epoch: int, done: int) -> float | None:
        """Mean over the epochs finished since limits are counted, else the estimate; None if it is not known.

        Args:
            epoch: that the run is in.
            done: its updates so far.
        """
        epochs = epoch - self._state.start_epoch
        counted = self._state.step - self._state.start_step - done
        return counted / epochs if epochs > 0 and counted > 0 else self._estimate

    def _followed(self) -> list[float]:
        """The scores that the schedule follows; see `Schedule.rate`."""
        figure, phase = self._config.followed_by(self.schedule), self._own_phase
        after = max(self._state.start_step, 0 if phase is None else phase.step)
        scores = self._state.planned_scores(figure, after=after)
        sign = 1 if self._config.evaluation.directions[figure] else -1
        return [sign * scores[step] for step in sorted(scores)]

    def schedule_end(self, seconds: float, step: int) -> int:
        """The update at which the schedule ends, in the schedule's own count.

        Args:
            seconds: of the run, on whose clock all ranks agree.
            step: updates done by then.
        """
        state, section, own = self._state, self._section, self._own_phase
        last, phase = self.last_step, phase_of(self._config, state)
        if own is not None and phase is not None and phase.until is not None and phase.until.updates is not None:
            last = min(last, own.step + phase.until.updates)
        spent, done = seconds - state.start_seconds, step - state.start_step
        if self.schedule.ends_with == "minutes" and section.max_minutes is not None and spent > 0 and done > 0:
            to_come = round((60 * section.max_minutes - spent) * done / spent)
            last = min(last, max(state.step + 1, step + to_come))
        return self._position(last)

    def look(self, epoch: int, number: int) -> Outlook:
        """How far the run has come.

        Args:
            epoch: of the last update.
            number: of the last update in its epoch, from 0.
        """
        state, section = self._state, self._section
        new, done = state.step - self._first_step, state.step - state.start_step
        pace = (state.seconds - self._first_second) / new if new > 0 else None
        updates = f"{state.step:,} update{'s' * (state.step != 1)}"
        shares = [(done / section.max_updates, f"{state.step:,} of {self.last_step:,} updates")]
        if section.max_target_tokens is not None:
            tokens, most = state.target_tokens - state.start_tokens, section.max_target_tokens
            shares.append((tokens / most, f"{updates}, {tokens:,} of {most:,} target tokens"))
        if section.max_epochs is not None and (an_epoch := self._updates_an_epoch(epoch, number + 1)):
            epochs = epoch - state.start_epoch + (number + 1) / an_epoch
            shares.append((epochs / section.max_epochs, f"{updates}, {epochs:.1f} of {section.max_epochs} epochs"))
        left = None if pace is None else pace * done * (1 / max(shares)[0] - 1)
        if section.max_minutes is not None:
            seconds, limit = state.seconds - state.start_seconds, 60 * section.max_minutes
            shares.append((seconds / limit, f"{updates}, {interval(seconds)} of {interval(limit)}"))
            left = None if left is None else min(left, limit - seconds)
        fraction, share = max(shares)
        return Outlook(
            fraction=min(max(fraction, 0.0), 1.0),
            share=share,
            seconds_left=None if left is None else max(left, 0.0),
            seconds_per_update=pace,
        )

    def is_time_up(self) -> bool:
        """Whether `max_minutes` have passed on this rank's clock."""
        most, state = self._section.max_minutes, self._state
        return most is not None and state.seconds - state.start_seconds > 60 * most

    def is_over(self, epoch: int) -> bool:
        """Whether a limit is reached, except the minutes, because each rank has its own clock; see `reached`."""
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
                more = f"{reason} at step {state.step:,}; training.{field} above {number} continues"
                limits.append(Limit(field, reason, more))
        if next_is_due(config, state, epoch) is not None:
            return limits
        stopping = self._section.early_stopping
        if stopping is not None:  # it depends only on scores, so all ranks agree, also after a kill
            after = max(state.start_step + stopping.after, 0 if state.phase is None else state.phase.step)
            if (why := no_better(config, state, stopping, state.start_step, after)) is not None:
                reason = f"training.early_stopping: {why}"
                more = f"{reason}; a larger training.early_stopping.patience continues"
                limits.append(Limit("early_stopping", reason, more))
        if (why := phase_end(config, state, epoch)) is not None:
            reason = f"phases: {why}, the last"
            limits.append(Limit("phases", reason, f"{reason}; a later until, or another phase, continues"))
        return limits
