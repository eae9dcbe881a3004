"""Progress of long work: a bar on a terminal, a plain line now and then elsewhere."""

import sys
import time
from types import TracebackType

from tqdm import tqdm

SECONDS_BETWEEN_LINES = 10.0


class Progress:
    """Counts pairs, on stderr."""

    def __init__(self, what: str, total: int | None = None) -> None:
        self._what = what
        self._total = total
        self._done = 0
        self._last = time.monotonic()
        self._bar = tqdm(total=total, desc=what, unit=" pairs", unit_scale=True) if sys.stderr.isatty() else None

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
        if self._bar is not None:
            self._bar.update(pairs)
        elif time.monotonic() - self._last >= SECONDS_BETWEEN_LINES:
            of = f" of {self._total:,}" if self._total else ""
            print(f"{self._what}: {self._done:,}{of} pairs", file=sys.stderr, flush=True)
            self._last = time.monotonic()
