"""Forward time of a rank, which other ranks cannot lengthen, and which therefore identifies stragglers."""

import time
from collections import deque
from types import TracebackType

import torch


class ForwardClock:
    """`with clock: model(...)` adds the time up; on a GPU by events on its stream, so that the host never waits."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._seconds = 0.0
        self._begin = 0.0
        self._first: torch.cuda.Event | None = None
        self._pairs: deque[tuple[torch.cuda.Event, torch.cuda.Event]] = deque()

    def __enter__(self) -> None:
        if self._device.type == "cuda":
            self._first = _recorded()
        else:
            self._begin = time.perf_counter()

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        if self._first is not None:
            self._pairs.append((self._first, _recorded()))
        else:
            self._seconds += time.perf_counter() - self._begin

    def take(self) -> float:
        """Seconds since the last call; what the GPU has not finished is counted at the next."""
        while self._pairs and self._pairs[0][1].query():  # type: ignore[no-untyped-call]
            first, last = self._pairs.popleft()
            self._seconds += first.elapsed_time(last) / 1000
        seconds, self._seconds = self._seconds, 0.0
        return seconds


def _recorded() -> torch.cuda.Event:
    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record()
    return event
