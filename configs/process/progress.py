"""Progress of long work: a bar on a terminal, otherwise a plain line now and then."""

import contextlib
import sys
import time
from types import TracebackType
from typing import TextIO

from tqdm import tqdm

from configs.process.streams import is_live, unfiltered

SECONDS_BETWEEN_LINES = 10.0


class Progress:
    """Shows progress in pairs, or another unit, on stderr, with rate and time left."""

    def __init__(
        self, what: str, total: int | None = None, done: int = 0, *, unit: str = "pairs", is_quiet: bool = False
    ) -> None:
        """Start at `done`, from an earlier attempt, which does not count for the rate. If quiet, nothing is shown."""
        self._what = what
        self._unit = unit
        self._is_quiet = is_quiet
        self._total = total
        self._before = self._done = done
        self._start = self._last = time.monotonic()
        self._bar = (
            tqdm(total=total, initial=done, desc=what, unit=f" {unit}", unit_scale=True, file=unfiltered(sys.stderr))
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
        """Add to the number done."""
        self._done += number
        now = time.monotonic()
        if self._bar is not None:
            self._bar.update(number)
        elif not self._is_quiet and now - self._last >= SECONDS_BETWEEN_LINES:
            say(self._line(now - self._start), file=sys.stderr)
            self._last = now

    def reach(self, number: int) -> None:
        """Set the number done, if it is higher than before."""
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
    """A rate, with two significant digits if it is small, so that it is never 0."""
    return f"{rate:,.0f}" if rate >= 10 else f"{float(f'{rate:.2g}'):.12f}".rstrip("0").rstrip(".")


def say(line: str, *, file: TextIO | None = None) -> None:
    """Print a line, to standard output by default, ignoring errors of a closed or full stream."""
    with contextlib.suppress(OSError, ValueError):
        print(line, file=file or sys.stdout, flush=True)
