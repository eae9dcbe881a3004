"""What a rank is doing: its seconds go to the ledger, and a rank that exceeds an activity's limit ends itself.

faulthandler does that, in a thread of C that needs no GIL: it writes the stacks of all threads to a file and exits with
code 1, whereupon torchrun ends the other ranks. The file lies in a folder of this machine, since writing to a full pipe
or to a file system that hangs would hold that thread, too. The launcher looks for it: `trainer.runs.failure`.
"""

import contextlib
import faulthandler
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from configs import RunConfig
from configs.process.environment import PRIVATE
from configs.process.files.inside import opened
from trainer.runs.failure import stacks_name
from trainer.runs.ledger import Kind, Ledger

ActivityName = Literal["setup", "data", "step", "save", "evaluation", "shutdown"]

_KINDS: dict[ActivityName, Kind] = {
    "setup": "setup",
    "data": "waiting_for_data",
    "save": "saving",
    "evaluation": "evaluating",
    "shutdown": "setup",
}
_SOONER_MINUTES = 2.0
"""By which a first update's limit is below the groups' time-out: a hung rank ends before those that wait for it."""
_LEAST_SECONDS = 0.001


@dataclass(slots=True)
class _Open:
    name: ActivityName
    step: int
    spent: float = 0.0


class Activities:
    """`with activities("save", step=500): ...`. Inside another activity, that one's clock stands still meanwhile.

    Until another one begins, an activity's limit holds for what comes after it.
    """

    def __init__(
        self,
        config: RunConfig,
        *,
        rank: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make one for the main thread of a rank.

        Args:
            config: has the limits.
            rank: which one it is, for the limits; None: there are none.
            clock: seconds.
        """
        self.ledger: Ledger | None = None
        """Where the seconds go; None on every rank but the first."""
        self._limits = config.supervision
        self._first_minutes = config.engine.communication_timeout_minutes - _SOONER_MINUTES
        self._has_stepped = False
        self._clock = clock
        self._open: list[_Open] = []
        self._resumed = clock()
        self._rank = rank
        if rank is not None:
            folder = os.environ.get(PRIVATE) or tempfile.mkdtemp(prefix="zeromt-")
            self._path = Path(folder, stacks_name(rank, "setup", 0, 0))
            self._stacks = opened(self._path, "wb")
            faulthandler.register(signal.SIGUSR2)  # for stacks by hand, on stderr

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
                of_step: Kind = "redone" if step <= self.ledger.highest_step else "productive"
                self.ledger.add(of_step if name == "step" else _KINDS[name], activity.spent)
            if self._open:
                self._resume(self._open[-1])
        if name == "step":
            self._has_stepped = True
            if self.ledger is not None:
                self.ledger.note_step(step)

    @property
    def current(self) -> ActivityName | None:
        """The activity that the rank is in; any thread may ask."""
        return next((activity.name for activity in self._open[-1:]), None)

    def close(self) -> None:
        """End the limits."""
        if self._rank is not None:
            faulthandler.cancel_dump_traceback_later()
            self._stacks.close()
            self._path.unlink(missing_ok=True)
            if PRIVATE not in os.environ:
                self._path.parent.rmdir()

    def minutes(self, name: ActivityName) -> float:
        """The limit of an activity that begins now."""
        if name in ("data", "step"):
            is_first = not self._has_stepped  # which compiles, and makes groups
            return max(self._limits.step_minutes, self._first_minutes) if is_first else self._limits.step_minutes
        return self._limits.evaluation_minutes if name == "evaluation" else self._limits.save_minutes

    def _count(self, activity: _Open) -> None:
        activity.spent += self._clock() - self._resumed

    def _resume(self, activity: _Open) -> None:
        self._resumed = self._clock()
        if self._rank is not None:
            minutes = self.minutes(activity.name)
            name = stacks_name(self._rank, activity.name, activity.step, minutes)
            self._path = self._path.rename(self._path.with_name(name))
            seconds = max(60 * minutes - activity.spent, _LEAST_SECONDS)
            faulthandler.dump_traceback_later(seconds, exit=True, file=self._stacks)
