"""What a virtual machine's host takes away while something is measured, and rates without the updates that it hit."""

import threading
import time
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

LEAST_UPDATES = 10
"""Of fewer undisturbed updates no rate is formed."""
DISTURBED = 0.05
"""An update is disturbed where the host took more than this fraction of the cores' time."""
_STAT = Path("/proc/stat")
_LOOK_SECONDS = 0.05
_STOLEN = 7
"""Position of `steal` behind the name in a line of /proc/stat; all eight up to it add up to the time that passed."""

Moment = tuple[float, float, float]
"""Seconds since the epoch; ticks of all cores until then, and those of them that were stolen."""


class StolenTime:
    """Watches from a thread, inside `with`, how much of the cores' time the host takes. Nothing where /proc is none."""

    def __init__(self) -> None:
        self._moments: list[Moment] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._moments.append(look())
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._moments.append(look())

    def fraction(self, begin: float | None = None, end: float | None = None) -> float:
        """Of the cores' time between two moments, seconds since the epoch; of all that was watched without them."""
        return fraction_between(self._moments, begin, end)

    def _watch(self) -> None:
        while not self._stop.wait(_LOOK_SECONDS):
            self._moments.append(look())


def look() -> Moment:
    """Now."""
    try:
        ticks = [float(word) for word in _STAT.read_text().split("\n", 1)[0].split()[1 : _STOLEN + 2]]
    except OSError:
        ticks = []
    return time.time(), sum(ticks), ticks[_STOLEN] if len(ticks) > _STOLEN else 0.0


def fraction_between(moments: Sequence[Moment], begin: float | None, end: float | None) -> float:
    """Stolen ticks over all, between the looks just before `begin` and just after `end`."""
    times = [at for at, _, _ in moments]
    first = 0 if begin is None else max(0, bisect_right(times, begin) - 1)
    last = len(times) - 1 if end is None else min(len(times) - 1, bisect_left(times, end))
    total = moments[last][1] - moments[first][1]
    return (moments[last][2] - moments[first][2]) / total if total else 0.0


def undisturbed(found: dict[str, Any], stolen: StolenTime) -> dict[str, Any]:
    """What a measurement's figures gain: `stolen`, and the rate of its undisturbed updates where it tells of them.

    Args:
        found: `ends`, of a start and then of every update the seconds since the epoch, and `counts`, each update's
            target tokens; a program that has neither keeps its rate as it is.
        stolen: watched meanwhile.
    """
    if "ends" not in found:
        return {"stolen": stolen.fraction()}
    spans = list(pairwise(found["ends"]))
    kept = [
        (end - begin, count)
        for (begin, end), count in zip(spans, found["counts"], strict=True)
        if stolen.fraction(begin, end) <= DISTURBED
    ]
    more: dict[str, Any] = {"stolen": stolen.fraction(spans[0][0], spans[-1][1]), "undisturbed_updates": len(kept)}
    if len(kept) >= LEAST_UPDATES:
        more["undisturbed_tokens_per_second"] = sum(c for _, c in kept) / sum(s for s, _ in kept)
    return more
