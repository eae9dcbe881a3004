"""When a run ends: the limits of the section `training`, counted from where the run began, or began anew."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from configs import TrainingSection
from trainer.checkpoint.state import TrainerState


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
    def reason(self) -> str:
        """Why the run ended."""
        return f"{self} is reached"

    @property
    def advice(self) -> str:
        """What to say where nothing is left to do."""
        return f"{self} is reached {self.at}; training.{self.field} above {self.more} goes on"


def reasons(limits: Sequence[Limit]) -> str | None:
    """Why the run ended, where limits ended it."""
    return "; ".join(limit.reason for limit in limits) or None


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

    def reached(self, epoch: int) -> list[Limit]:
        """The limits that stand in the way of another update.

        Args:
            epoch: of the next update.
        """
        section, state = self._section, self._state
        counted = f", counted from step {state.start_step:,}" if state.start_step else ""
        found = []
        if state.step >= self.last_step:
            value, done = f"{section.max_updates:,}{counted}", state.step - state.start_step
            found.append(Limit(field="max_updates", value=value, at=f"at step {state.step:,}", more=f"{done}"))
        if self.are_epochs_over(epoch):
            value, done = f"{section.max_epochs}{counted}", epoch - state.start_epoch
            found.append(Limit(field="max_epochs", value=value, at=f"at step {state.step:,}", more=f"{done}"))
        if self.is_time_up():
            spent = math.ceil((state.seconds - state.start_seconds) / 60 * 1000) / 1000  # above it there is time left
            value = f"{section.max_minutes:g}{counted}"
            at = f"after {spent:.3f} minutes, at step {state.step:,}"
            found.append(Limit(field="max_minutes", value=value, at=at, more=f"{spent:.3f}"))
        return found

    def figures(self) -> dict[str, Any]:
        """Where they are counted from, for whoever reads the run's metrics; nothing where that is step 0."""
        state = self._state
        if not state.start_step:
            return {}
        return {"limits_from": {"step": state.start_step, "seconds": round(state.start_seconds, 3)}}

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
    """Limits were reached before, and all that belongs to their step is there."""

    def __init__(self, limits: Sequence[Limit], *, step: int) -> None:
        super().__init__("nothing to do: " + "; ".join(limit.advice for limit in limits))
        self.reason = "; ".join(limit.reason for limit in limits)
        self.step = step
