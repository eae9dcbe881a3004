"""What a rank is doing: every section has a time limit, and its seconds go to the ledger."""

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from configs import SupervisionSection
from trainer.ranks.watchdog import SETTINGS, Watchdog
from trainer.runs.ledger import Kind, Ledger

SectionName = Literal["setup", "data", "step", "save", "evaluation", "shutdown"]

_KINDS: dict[SectionName, Kind] = {
    "setup": "setup",
    "data": "waiting_for_data",
    "save": "saving",
    "evaluation": "evaluating",
    "shutdown": "setup",
}


@dataclass(slots=True)
class _Open:
    name: SectionName
    step: int
    spent: float = 0.0


class Sections:
    """`with sections("save", step=500): ...`. Inside another section, that one's clock stands still meanwhile."""

    def __init__(
        self,
        watchdog: Watchdog,
        ledger: Ledger | None,
        section: SupervisionSection,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make one for the main thread of a rank.

        Args:
            watchdog: gets the limits.
            ledger: gets the seconds; None on every rank but the first.
            section: the limits.
            clock: seconds.
        """
        self._watchdog = watchdog
        self._ledger = ledger
        self._seconds = {name: 60.0 * getattr(section, setting) for name, setting in SETTINGS.items()}
        self._watchdog.limit_save(self._seconds["save"])
        self._clock = clock
        self._open: list[_Open] = []
        self._resumed = clock()

    @contextlib.contextmanager
    def __call__(self, name: SectionName, step: int = 0) -> Iterator[None]:
        """Be in a section until the `with` block ends.

        Args:
            name: which.
            step: the update that it belongs to: for `step` the one that is made, counted from 1.
        """
        if self._open:
            self._count(self._open[-1])
        section = _Open(name, step)
        self._open.append(section)
        self._resume(section)
        try:
            yield
        finally:
            self._count(section)
            self._open.pop()
            if self._ledger is not None:
                self._ledger.add(self._kind(section), section.spent)
            if self._open:
                self._resume(self._open[-1])
            else:
                self._watchdog.leave()
        if name == "step" and self._ledger is not None:
            self._ledger.note_step(step)

    def _kind(self, section: _Open) -> Kind:
        if section.name != "step":
            return _KINDS[section.name]
        assert self._ledger is not None
        return "redone" if section.step <= self._ledger.highest_step else "productive"

    def _count(self, section: _Open) -> None:
        section.spent += self._clock() - self._resumed

    def _resume(self, section: _Open) -> None:
        self._resumed = self._clock()
        self._watchdog.enter(section.name, self._seconds[section.name], section.step, spent=section.spent)
