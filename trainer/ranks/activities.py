"""What a rank is doing: every activity has a time limit, and its seconds go to the ledger."""

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from configs import SupervisionSection
from configs.process.positions import Position
from trainer.ranks.watchdog import SETTINGS, Watchdog
from trainer.runs.ledger import Kind, Ledger

ActivityName = Literal["setup", "data", "step", "save", "evaluation", "shutdown"]

_KINDS: dict[ActivityName, Kind] = {
    "setup": "setup",
    "data": "waiting_for_data",
    "save": "saving",
    "evaluation": "evaluating",
    "shutdown": "setup",
}


@dataclass(slots=True)
class _Open:
    name: ActivityName
    step: int
    spent: float = 0.0


class Activities:
    """`with activities("save", step=500): ...`. Inside another activity, that one's clock stands still meanwhile."""

    def __init__(
        self,
        watchdog: Watchdog,
        ledger: Ledger | None,
        limits: SupervisionSection,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make one for the main thread of a rank.

        Args:
            watchdog: gets the limits.
            ledger: gets the seconds; None on every rank but the first.
            limits: in minutes, of each activity.
            clock: seconds.
        """
        self._watchdog = watchdog
        self.ledger = ledger
        """Where the seconds go; None on every rank but the first."""
        self._seconds = {name: 60.0 * getattr(limits, setting) for name, setting in SETTINGS.items()}
        self._watchdog.limit_save(self._seconds["save"])
        self._has_stepped = False
        self._clock = clock
        self._open: list[_Open] = []
        self._position = Position(update=0, micro_batch=0)
        self._resumed = clock()

    @contextlib.contextmanager
    def __call__(self, name: ActivityName, step: int = 0) -> Iterator[None]:
        """Be in an activity until the `with` block ends.

        Args:
            name: which.
            step: the update that it belongs to: for `step` the one that is made, counted from 1.
        """
        if self._open:
            self._count(self._open[-1])
        activity = _Open(name, step)
        self._open.append(activity)
        self._resume(activity)
        try:
            yield
        finally:
            self._count(activity)
            self._open.pop()
            if self.ledger is not None:
                self.ledger.add(self._kind(activity), activity.spent)
            if self._open:
                self._resume(self._open[-1])
            else:
                self._watchdog.leave()
            if self._position.in_device:
                self.reach(self._position.update, self._position.micro_batch, in_device=False)
        if name == "step":
            self._has_stepped = True
            if self.ledger is not None:
                self.ledger.note_step(step)

    @property
    def current(self) -> ActivityName | None:
        """The activity that the rank is in; any thread may ask."""
        return next((activity.name for activity in self._open[-1:]), None)

    def reach(self, update: int, micro_batch: int, *, in_device: bool) -> None:
        """Tell the watchdog how far the rank is; see Position."""
        self._position = Position(update=update, micro_batch=micro_batch, in_device=in_device)
        self._watchdog.reach(self._position)

    def _kind(self, activity: _Open) -> Kind:
        if activity.name != "step":
            return _KINDS[activity.name]
        assert self.ledger is not None
        return "redone" if activity.step <= self.ledger.highest_step else "productive"

    def _count(self, activity: _Open) -> None:
        activity.spent += self._clock() - self._resumed

    def _resume(self, activity: _Open) -> None:
        self._resumed = self._clock()
        is_first = activity.name in ("data", "step") and not self._has_stepped  # which compiles, and makes groups
        seconds = (1 + is_first) * self._seconds[activity.name]
        self._watchdog.enter(activity.name, seconds, activity.step, spent=activity.spent)
