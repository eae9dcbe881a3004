"""What a run's time was spent on, over all restarts."""

import json
import logging
import time
from collections.abc import Callable
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
        self._ranks, self._device = ranks, device
        self._is_warned = False
        now = clock()
        started = now if started is None else started
        self._tree: dict[str, Any] = {"highest_step": 0, "restarts": -1}
        self._tree |= {"seconds": dict.fromkeys(KINDS, 0.0), "device_seconds": {}}
        try:
            self._tree = _read(path)
            if not was_over:
                self.add("stalled", started - self._tree["time"])
        except FileNotFoundError:
            pass
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.warning("%s is not a ledger, a new one is begun: %s", path, error)
        self._tree["restarts"] += 1
        self.add("setup", now - started)

    @property
    def highest_step(self) -> int:
        """The highest update made so far by any process of the run."""
        return int(self._tree["highest_step"])

    def add(self, kind: Kind, seconds: float) -> None:
        """Add seconds. Negative ones, of a clock that was set back, are ignored."""
        seconds = max(0.0, seconds)
        self._tree["seconds"][kind] += seconds
        if kind != "stalled":
            of_devices = self._tree["device_seconds"]
            of_devices[self._device] = of_devices.get(self._device, 0.0) + self._ranks * seconds

    def note_step(self, step: int) -> None:
        """Note that an update was made."""
        self._tree["highest_step"] = max(self.highest_step, step)

    def figures(self) -> dict[str, float]:
        """Seconds of every kind as `setup_seconds` and so on, their sum as `wall_seconds`, and the `goodput`: the
        fraction that was productive. `restarts`: how often the run was started again.
        """
        return _figures(self._tree)

    def write(self) -> None:
        """Replace the file atomically. Warns once if it cannot be written."""
        try:
            write_text(self._path, json.dumps({**self._tree, "time": self._clock()}) + "\n")
        except OSError as error:
            if not self._is_warned:
                log.warning("%s cannot be written; training continues: %s", self._path, error)
            self._is_warned = True


def read_ledger(path: Path) -> dict[str, Any]:
    """What another process has in a ledger's file; nothing if it cannot be read.

    Figures as of `Ledger.figures`; `highest_step`; and `devices`: seconds by the name of the device, summed over ranks,
    without stalled time.
    """
    try:
        tree = _read(path)
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return {**_figures(tree), "highest_step": tree["highest_step"], "devices": tree["device_seconds"]}


def _figures(tree: dict[str, Any]) -> dict[str, float]:
    seconds = tree["seconds"]
    total = sum(seconds.values())
    goodput = seconds["productive"] / total if total else 0.0
    rounded = {f"{kind}_seconds": round(s, 3) for kind, s in seconds.items()}
    return {**rounded, "wall_seconds": round(total, 3), "goodput": round(goodput, 6), "restarts": tree["restarts"]}


def _read(path: Path) -> dict[str, Any]:
    """What `Ledger.write` wrote. Raises OSError, ValueError, KeyError or TypeError on an invalid file."""
    tree = read_json(path)
    return {
        "seconds": {kind: float(tree["seconds"][kind]) for kind in KINDS},
        "device_seconds": {device: float(s) for device, s in dict(tree["device_seconds"]).items()},
        **{name: tree[name] + 0 for name in ("highest_step", "restarts", "time")},
    }
