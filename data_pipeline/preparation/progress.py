"""Progress of long work: a bar on a terminal, a plain line now and then elsewhere."""

import contextlib
import sys
import time
from types import TracebackType
from typing import TextIO

from tqdm import tqdm

from data_pipeline.terminal import is_live

SECONDS_BETWEEN_LINES = 10.0


class Progress:
    """Counts pairs, or another unit, on stderr, with the rate and the time that is left."""

    def __init__(
        self, what: str, total: int | None = None, done: int = 0, *, unit: str = "pairs", is_quiet: bool = False
    ) -> None:
        """Start at `done`, of an earlier run: it does not count for the rate. A quiet one shows nothing."""
        self._what = what
        self._unit = unit
        self._is_quiet = is_quiet
        self._total = total
        self._before = self._done = done
        self._start = self._last = time.monotonic()
        self._bar = (
            tqdm(total=total, initial=done, desc=what, unit=f" {unit}", unit_scale=True)
            if is_live(sys.stderr) and not is_quiet
            else None
        )

    def __enter__(self) -> "Progress":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()

    def advance(self, number: int) -> None:
        """So many more are done."""
        self._done += number
        now = time.monotonic()
        if self._bar is not None:
            self._bar.update(number)
        elif not self._is_quiet and now - self._last >= SECONDS_BETWEEN_LINES:
            say(self._line(now - self._start), file=sys.stderr)
            self._last = now

    def reach(self, number: int) -> None:
        """So many are done in all, if that is more than was said."""
        if number > self._done:
            self.advance(number - self._done)

    def _line(self, seconds: float) -> str:
        done = self._done - self._before
        so_far = ""
        if self._total is not None:
            so_far = f" of {self._total:,} {self._unit} ({self._done / max(1, self._total):.0%})"
        said = [f"{self._what}: {self._done:,}{so_far or f' {self._unit}'}"]
        if done:
            said.append(f"{_figures(done / seconds)} {self._unit}/s")
            if self._total is not None:
                said.append(f"{tqdm.format_interval((self._total - self._done) * seconds / done)} left")
        return ", ".join(said)


def _figures(rate: float) -> str:
    """A rate that is never 0: two figures where it is small."""
    return f"{rate:,.0f}" if rate >= 10 else f"{float(f'{rate:.2g}'):.12f}".rstrip("0").rstrip(".")


def say(line: str, *, file: TextIO | None = None) -> None:
    """A line for whoever watches, on standard output unless said. Nobody need: it may be closed, or full."""
    with contextlib.suppress(OSError, ValueError):
        print(line, file=file or sys.stdout, flush=True)
