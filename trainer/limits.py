"""When a run ends: the limits of the section `training`, counted from where the run began, or began anew."""

from dataclasses import dataclass

from configs import TrainingSection
from trainer.state import TrainerState


@dataclass(kw_only=True, slots=True, frozen=True)
class Limit:
    """A limit that is reached."""

    field: str
    """Of the section `training`."""
    value: str
    """As it is set, and from where it is counted."""
    at: str
    """Where the run stands."""
    more: str
    """What it would have to be more than, for the run to go on."""

    def __str__(self) -> str:
        return f"training.{self.field}={self.value}"

    @property
    def advice(self) -> str:
        """What to say where nothing is left to do."""
        return f"nothing to do: {self} is reached {self.at}; training.{self.field} above {self.more} goes on"


class Limits:
    """A run's limits. After `--reset` they count from there; step numbers go on."""

    def __init__(self, section: TrainingSection, state: TrainerState) -> None:
        self._section = section
        self._state = state

    @property
    def last_step(self) -> int:
        """The last update that `max_updates` allows."""
        return self._state.start_step + self._section.max_updates

    def is_time_up(self) -> bool:
        """Whether `max_minutes` have passed."""
        minutes = self._section.max_minutes
        return minutes is not None and self._state.seconds - self._state.start_seconds > 60 * minutes

    def are_epochs_over(self, epoch: int) -> bool:
        """Whether `max_epochs` have been gone through before this one."""
        most = self._section.max_epochs
        return most is not None and epoch - self._state.start_epoch >= most

    def reached(self, epoch: int) -> Limit | None:
        """The first limit that stands in the way of another update.

        Args:
            epoch: of the next update.
        """
        section, state = self._section, self._state
        counted = f", counted from step {state.start_step:,}" if state.start_step else ""
        if state.step >= self.last_step:
            value, done = f"{section.max_updates:,}{counted}", state.step - state.start_step
            return Limit(field="max_updates", value=value, at=f"at step {state.step:,}", more=f"{done}")
        if self.are_epochs_over(epoch):
            value, done = f"{section.max_epochs}{counted}", epoch - state.start_epoch
            return Limit(field="max_epochs", value=value, at=f"at step {state.step:,}", more=f"{done}")
        if self.is_time_up():
            minutes = (state.seconds - state.start_seconds) / 60
            value = f"{section.max_minutes:g}{counted}"
            at = f"after {minutes:.3g} minutes, at step {state.step:,}"
            return Limit(field="max_minutes", value=value, at=at, more=f"{minutes:.3g}")
        return None

    def describe(self) -> str | None:
        """What to say at a start where limits are not counted from step 0."""
        if not self._state.start_step:
            return None
        section = self._section
        named = [f"{section.max_updates:,} updates"]
        named += [f"{section.max_epochs} epochs"] if section.max_epochs is not None else []
        named += [f"{section.max_minutes:g} minutes"] if section.max_minutes is not None else []
        return f"limit {', '.join(named)}, counted from step {self._state.start_step:,}"


class NothingToDo(Exception):  # noqa: N818 (no error)
    """A limit was reached before, and all that belongs to its step is there."""

    def __init__(self, limit: Limit) -> None:
        super().__init__(limit.advice)
        self.limit = limit
