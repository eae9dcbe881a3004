"""What a run's time was spent on, over all restarts."""

import json
import logging
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from configs.process.files.inside import read_json, write_text

log = logging.getLogger(__name__)

Kind = Literal["setup", "productive", "redone", "waiting_for_data", "saving", "evaluating", "stalled"]
KINDS: tuple[Kind, ...] = get_args(Kind)


class Ledger:
    """Seconds by kind, in a file of the run's folder. Only rank 0 writes it.

    It is not rolled back when training resumes from a checkpoint: updates up to `highest_step` were made before, and
    count as `redone` when they are made again. `stalled` is the time without a process: from the last write of the
    previous process to the start of this one. It includes the lost work of a killed process after its last write. Time
    after the run was finished or stopped by a person does not count.
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
        """Continue the file, or start one.

        Args:
            path: the file; it need not exist. An invalid one is replaced, with a warning.
            clock: seconds since the epoch.
            started: when this process began, by that clock; the time since then is `setup`. Default: now.
            was_over: the run had finished, or a person had asked it to stop.
            ranks: number of processes from now on, each with its own device.
            device: the name of the device, such as that of a GPU.
        """
        self._path = path
        self._clock = clock
        now = clock()
        started = now if started is None else started
        self._seconds: dict[Kind, float] = dict.fromkeys(KINDS, 0.0)
        self._device_seconds: dict[str, float] = {}
        self._ranks, self._device = ranks, device
        self.highest_step = 0
        """The highest update made so far by any process of the run."""
        self._restarts = 0
        self._is_warned = False
        try:
            tree = _read(path)
            self._seconds, self._device_seconds = tree["seconds"], tree["device_seconds"]
            self.highest_step, self._restarts = tree["highest_step"], tree["restarts"] + 1
            if not was_over:
                self.add("stalled", started - tree["time"])
        except FileNotFoundError:
            pass
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.warning("%s is not a ledger, a new one is begun: %s", path, error)
        self.add("setup", now - started)

    def add(self, kind: Kind, seconds: float) -> None:
        """Add seconds. Negative ones, of a clock that was set back, are ignored."""
        self._seconds[kind] += max(0.0, seconds)
        if kind != "stalled":
            spent = self._device_seconds.get(self._device, 0.0)
            self._device_seconds[self._device] = spent + self._ranks * max(0.0, seconds)

    def note_step(self, step: int) -> None:
        """Note that an update was made."""
        self.highest_step = max(self.highest_step, step)

    def figures(self) -> dict[str, float]:
        """Seconds of every kind as `setup_seconds` and so on, their sum as `wall_seconds`, and the `goodput`: the
        fraction of them that was productive. `restarts`: how often the run was started again.
        """
        return {**_figures(self._seconds), "restarts": self._restarts}

    def write(self) -> None:
        """Replace the file atomically. Warns once if it cannot be written."""
        tree: dict[str, Any] = {"seconds": self._seconds, "highest_step": self.highest_step, "time": self._clock()}
        tree |= {"restarts": self._restarts, "device_seconds": self._device_seconds}
        try:
            write_text(self._path, json.dumps(tree) + "\n")
        except OSError as error:
            if not self._is_warned:
                log.warning("%s cannot be written, training goes on: %s", self._path, error)
            self._is_warned = True


def read_figures(path: Path) -> dict[str, float] | None:
    """The figures in a ledger's file, for another process; None if it cannot be read."""
    try:
        tree = _read(path)
        return {**_figures(tree["seconds"]), "restarts": tree["restarts"]}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def read_device_seconds(path: Path) -> dict[str, float] | None:
    """Device seconds by the name of the device, summed over ranks; stalled time does not count.

    None if there is no readable ledger.
    """
    try:
        return dict(_read(path)["device_seconds"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def read_highest_step(path: Path) -> int:
    """The highest update made, from a ledger's file; 0 if it is not known."""
    try:
        return int(_read(path)["highest_step"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0


def _figures(seconds: Mapping[Kind, float]) -> dict[str, float]:
    total = sum(seconds.values())
    figures = {f"{kind}_seconds": round(s, 3) for kind, s in seconds.items()}
    goodput = seconds["productive"] / total if total else 0.0
    return {**figures, "wall_seconds": round(total, 3), "goodput": round(goodput, 6)}


def _read(path: Path) -> dict[str, Any]:
    """What `Ledger.write` wrote. Raises OSError, ValueError, KeyError or TypeError on an invalid file."""
    tree = read_json(path)
    return {
        "seconds": {kind: _number(tree["seconds"][kind]) for kind in KINDS},
        "device_seconds": {str(device): _number(s) for device, s in dict(tree["device_seconds"]).items()},
        "highest_step": int(tree["highest_step"]),
        "restarts": int(_number(tree["restarts"])),
        "time": _number(tree["time"]),
    }


def _number(value: Any) -> float:
    number = float(value)
    if not (math.isfinite(number) and number >= 0):
        raise ValueError(f"{value!r} is not a number of seconds")
    return number
