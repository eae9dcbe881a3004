"""Where a run's time went, over all its restarts."""

import json
import logging
import math
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

log = logging.getLogger(__name__)

Kind = Literal["setup", "productive", "redone", "waiting_for_data", "saving", "evaluating", "stalled"]
KINDS: tuple[Kind, ...] = get_args(Kind)


class Ledger:
    """Seconds by kind in a file of the run's folder. One process writes it: rank 0.

    It is not rolled back when training resumes from a checkpoint: updates that were made before, up to
    `highest_step`, count as `redone` when they are made again. `stalled` is the time between the last word of the
    process before and the start of this one, when nobody worked. What a killed process did after its last word is
    part of that, being lost. After a run that was over nobody was to work: that time counts nothing.
    """

    def __init__(
        self,
        path: Path,
        *,
        clock: Callable[[], float] = time.time,
        started: float | None = None,
        was_over: bool = False,
        ranks: int = 1,
        device: str = "CPU",
    ) -> None:
        """Go on with the file, or begin.

        Args:
            path: the file; it need not be there. One that is no ledger is replaced, with a warning.
            clock: seconds since the epoch.
            started: when this process began by that clock; the time since then is `setup`. Now by default.
            was_over: the run had finished before, or a person had asked it to stop.
            ranks: processes that work from now on, each with a device of its own.
            device: what that is, such as the name of a GPU.
        """
        self._path = path
        self._clock = clock
        now = clock()
        started = now if started is None else started
        self._seconds: dict[Kind, float] = dict.fromkeys(KINDS, 0.0)
        self._device_seconds: dict[str, float] | None = {}
        self._ranks, self._device = ranks, device
        self.highest_step = 0
        """The last update that was made, in any process of the run."""
        self._is_warned = False
        try:
            self._seconds, self.highest_step, last_word = _read(path)
            self._device_seconds = read_device_seconds(path)
            if not was_over:
                self.add("stalled", started - last_word)
        except FileNotFoundError:
            pass
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.warning("%s is not a ledger, a new one is begun: %s", path, error)
        self.add("setup", now - started)

    def add(self, kind: Kind, seconds: float) -> None:
        """Count seconds. Negative ones, of a clock that was set back, count nothing."""
        self._seconds[kind] += max(0.0, seconds)
        if self._device_seconds is not None and kind != "stalled":
            spent = self._device_seconds.get(self._device, 0.0)
            self._device_seconds[self._device] = spent + self._ranks * max(0.0, seconds)

    def note_step(self, step: int) -> None:
        """An update was made."""
        self.highest_step = max(self.highest_step, step)

    def figures(self) -> dict[str, float]:
        """Seconds of every kind as `setup_seconds` and so on, their sum as `wall_seconds`, and the `goodput`: the
        fraction of them that was productive.
        """
        return _figures(self._seconds)

    def write(self) -> None:
        """Put the file in place of the one before, whole or not at all. Warns once where it cannot be written."""
        tree: dict[str, Any] = {"seconds": self._seconds, "highest_step": self.highest_step, "time": self._clock()}
        if self._device_seconds is not None:
            tree["device_seconds"] = self._device_seconds
        beside = self._path.with_name(f"{self._path.name}.{os.getpid()}.tmp")
        try:
            beside.write_text(json.dumps(tree) + "\n", encoding="utf-8")
            beside.replace(self._path)
        except OSError as error:
            beside.unlink(missing_ok=True)
            if not self._is_warned:
                log.warning("%s cannot be written, training goes on: %s", self._path, error)
            self._is_warned = True


def read_figures(path: Path) -> dict[str, float] | None:
    """The figures of a ledger's file as it stands, for another process; None where there is none to read."""
    try:
        return _figures(_read(path)[0])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def read_device_seconds(path: Path) -> dict[str, float] | None:
    """Seconds of work by the name of the device, those of each rank counted; the time when nobody worked costs none.

    None where it is not known: there is no ledger to read, or it was begun before this was counted.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))["device_seconds"]
        return {str(device): _number(seconds) for device, seconds in found.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def read_highest_step(path: Path) -> int:
    """The last update that was made, as a ledger's file says; 0 where it says nothing."""
    try:
        return _read(path)[1]
    except (OSError, ValueError, KeyError, TypeError):
        return 0


def _figures(seconds: Mapping[Kind, float]) -> dict[str, float]:
    total = sum(seconds.values())
    figures = {f"{kind}_seconds": round(s, 3) for kind, s in seconds.items()}
    goodput = seconds["productive"] / total if total else 0.0
    return {**figures, "wall_seconds": round(total, 3), "goodput": round(goodput, 6)}


def _read(path: Path) -> tuple[dict[Kind, float], int, float]:
    """Seconds by kind, the highest step, and when that was written. Raises what comes of a file that is no ledger."""
    tree = json.loads(path.read_text(encoding="utf-8"))
    seconds = {kind: _number(tree["seconds"][kind]) for kind in KINDS}
    return seconds, int(tree["highest_step"]), _number(tree["time"])


def _number(value: Any) -> float:
    number = float(value)
    if not (math.isfinite(number) and number >= 0):
        raise ValueError(f"{value!r} is not a number of seconds")
    return number
