"""Runs a tracker's writer in a thread of its own: a slow or failing tracker neither delays nor ends training."""

import collections
import logging
import threading
import time
from collections.abc import Callable

from configs.components import Writer
from configs.process.with_torch import abandon_at_exit

log = logging.getLogger(__name__)

MAX_QUEUED = 1000
"""Records that are queued for a slow writer; while the queue is full, new ones are dropped."""
CLOSE_SECONDS = 30.0
"""Time that a writer has to write its queue when the run ends, and before a rewind."""

Action = Callable[[Writer], None]


class BackgroundWriter:
    """Opens a writer and calls it in a thread of its own, in order. A writer that raises is dropped with a warning."""

    def __init__(self, name: str, open_writer: Callable[[], Writer], *, max_queued: int = MAX_QUEUED) -> None:
        """Start the thread, which opens the writer.

        Args:
            name: the writer's name in warnings.
            open_writer: called in the thread, because it may have to wait for the network.
            max_queued: longest queue, in records.
        """
        self._name = name
        self._open = open_writer
        self._max_queued = max_queued
        self._queue: collections.deque[Action] = collections.deque()
        self._changed = threading.Condition()
        self._is_over = False  # takes no more records: it was closed or dropped
        self._is_given_up = False
        self._is_abandoned = False
        self._ended = 0.0
        self._num_dropped = 0
        self._thread = threading.Thread(target=self._run, name=f"tracker {name}", daemon=True)
        self._thread.start()

    def put(self, action: Action) -> None:
        """Queue a call of the writer; returns at once."""
        with self._changed:
            if self._is_over:
                return
            if len(self._queue) < self._max_queued:
                self._queue.append(action)
                self._changed.notify()
                return
            self._num_dropped += 1
        if self._num_dropped == 1:
            log.warning(
                "%s is too slow: records are dropped while %d are queued; training goes on",
                self._name,
                self._max_queued,
            )

    def end(self, last: Action | None = None) -> None:
        """Take no more records; the thread writes the queue, makes a last call, and closes the writer."""
        self._ended = time.monotonic()
        with self._changed:
            if last is not None and not self._is_over:
                self._queue.append(last)
            self._is_over = True
            self._changed.notify()

    def join(self, seconds: float = CLOSE_SECONDS) -> None:
        """After `end`: wait at most this long for the thread, and warn of records that were not written."""
        self._thread.join(seconds)
        if self._thread.is_alive():
            self._is_abandoned = True
            abandon_at_exit(self._name)
            waited = time.monotonic() - self._ended
            log.warning("%s did not finish within %.0f s and is abandoned; training goes on", self._name, waited)
        if self._num_dropped:
            log.warning("%s: %d records were dropped", self._name, self._num_dropped)

    def _run(self) -> None:
        try:
            writer = self._open()
        except (Exception, SystemExit) as error:
            self._give_up("cannot be opened", error)
            return
        try:
            while (action := self._next()) is not None:
                action(writer)
        except (Exception, SystemExit) as error:
            self._give_up("failed", error)
        if not self._is_abandoned:  # also after a failure: earlier records may still be in the writer's buffer
            try:
                writer.close()
            except (Exception, SystemExit) as error:
                self._give_up("failed", error)

    def _give_up(self, what: str, error: BaseException) -> None:
        with self._changed:
            self._is_over = True
            self._queue.clear()
        if not self._is_given_up and not self._is_abandoned:
            log.warning("%s %s and is dropped; training goes on: %s", self._name, what, describe_error(error))
        self._is_given_up = True

    def _next(self) -> Action | None:
        with self._changed:
            while not self._queue and not self._is_over:
                self._changed.wait()
            return self._queue.popleft() if self._queue and not self._is_abandoned else None


def join_all(writers: list[BackgroundWriter], last: Action | None = None, *, seconds: float = CLOSE_SECONDS) -> None:
    """End all writers at once, with a last call of each; together they have this many seconds."""
    for writer in writers:
        writer.end(last)
    deadline = time.monotonic() + seconds
    for writer in writers:
        writer.join(max(0.0, deadline - time.monotonic()))


def describe_error(error: BaseException) -> str:
    """An error's type and message as one line."""
    text = " ".join(str(error).split())
    return text if isinstance(error, OSError) else f"{type(error).__name__}: {text}"
