"""CPU time that a virtual machine's host takes (steal) during a measurement, and rates without the updates it hit."""

import threading
import time
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

MIN_UPDATES = 10
"""Fewest undisturbed updates for which a rate is computed."""
DISTURBED = 0.05
"""An update is disturbed if the host took more than this fraction of the CPU time."""
_STAT = Path("/proc/stat")
_SAMPLE_SECONDS = 0.05
_STOLEN = 7
"""Index of `steal` among the numbers of a /proc/stat line; the eight numbers up to it sum to the total time."""

Moment = tuple[float, float, float]
"""Seconds since the epoch, total ticks of all cores, and stolen ticks among them."""


class StolenTime:
    """Samples stolen CPU time in a thread, inside `with`. Reports 0 on systems without /proc."""

    def __init__(self) -> None:
        self._moments: list[Moment] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._moments.append(sample())
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._moments.append(sample())

    def fraction(self, begin: float | None = None, end: float | None = None) -> float:
        """Stolen fraction of CPU time from `begin` to `end` (seconds since the epoch); by default of the whole time."""
        return fraction_between(self._moments, begin, end)

    def _watch(self) -> None:
        while not self._stop.wait(_SAMPLE_SECONDS):
            self._moments.append(sample())


def sample() -> Moment:
    """The ticks of /proc/stat now."""
    try:
        ticks = [float(word) for word in _STAT.read_text().split("\n", 1)[0].split()[1 : _STOLEN + 2]]
    except OSError:
        ticks = []
    return time.time(), sum(ticks), ticks[_STOLEN] if len(ticks) > _STOLEN else 0.0


def fraction_between(moments: Sequence[Moment], begin: float | None, end: float | None) -> float:
    """Stolen ticks over all ticks, between the last sample before `begin` and the first after `end`."""
    times = [at for at, _, _ in moments]
    first = 0 if begin is None else max(0, bisect_right(times, begin) - 1)
    last = len(times) - 1 if end is None else min(len(times) - 1, bisect_left(times, end))
    total = moments[last][1] - moments[first][1]
    return (moments[last][2] - moments[first][2]) / total if total else 0.0


def undisturbed(found: dict[str, Any], stolen: StolenTime) -> dict[str, Any]:
    """Extra figures of a measurement: `stolen`, and, if it reports its updates, the rate of the undisturbed ones.

    Args:
        found: may have `ends`, seconds since the epoch of the start and of the end of every update, and `counts`, the
            target tokens of every update.
        stolen: sampled during the measurement.
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
    if len(kept) >= MIN_UPDATES:
        more["undisturbed_tokens_per_second"] = sum(c for _, c in kept) / sum(s for s, _ in kept)
    return more
