"""Progress of long work: a bar on a terminal, a plain line now and then elsewhere."""

import sys
import time
from types import TracebackType

from tqdm import tqdm

SECONDS_BETWEEN_LINES = 10.0


class Progress:
    """Counts pairs, on stderr, with the rate and the time that is left."""

    def __init__(self, what: str, total: int | None = None, done: int = 0) -> None:
        """Start at `done`, of an earlier run: it does not count for the rate."""
        self._what = what
        self._total = total
        self._before = self._done = done
        self._start = self._last = time.monotonic()
        self._bar = (
            tqdm(total=total, initial=done, desc=what, unit=" pairs", unit_scale=True) if sys.stderr.isatty() else None
        )

    def __enter__(self) -> "Progress":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()

    def advance(self, pairs: int) -> None:
        """So many more are done."""
        self._done += pairs
        now = time.monotonic()
        if self._bar is not None:
            self._bar.update(pairs)
        elif now - self._last >= SECONDS_BETWEEN_LINES:
            print(self._line(now - self._start), file=sys.stderr, flush=True)
            self._last = now

    def _line(self, seconds: float) -> str:
        rate = (self._done - self._before) / seconds
        if self._total is None:
            return f"{self._what}: {self._done:,} pairs, {rate:,.0f} pairs/s"
        share = f"{self._done:,} of {self._total:,} pairs ({self._done / max(1, self._total):.0%}), {rate:,.0f} pairs/s"
        left = (self._total - self._done) / rate if rate else 0.0
        return f"{self._what}: {share}, {tqdm.format_interval(left)} left"
