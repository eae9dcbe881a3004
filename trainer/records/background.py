"""Runs a tracker's writer in a thread of its own: a slow or failing tracker neither delays nor ends training."""

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence

from configs.components import Writer
from configs.process.with_torch import abandon_at_exit

log = logging.getLogger(__name__)

MAX_QUEUED = 1000
"""Records that are queued for a slow writer; while the queue is full, new ones are dropped."""
CLOSE_SECONDS = 30.0
"""Time that all writers together have to write their queues when the run ends, and before a rewind."""

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
        self._name, self._open, self._max_queued = name, open_writer, max_queued
        self._queue: queue.SimpleQueue[Action | None] = queue.SimpleQueue()
        self._num_dropped = 0
        self._is_over = False  # it has failed, or was abandoned
        self._thread = threading.Thread(target=self._run, name=f"tracker {name}", daemon=True)
        self._thread.start()

    def put(self, action: Action) -> None:
        """Queue a call of the writer; returns at once."""
        if self._is_over:
            return
        if self._queue.qsize() < self._max_queued:
            self._queue.put(action)
            return
        self._num_dropped += 1
        if self._num_dropped == 1:
            log.warning(
                "%s is too slow: records are dropped while %d are queued; training goes on",
                self._name,
                self._max_queued,
            )

    def end(self, last: Action) -> None:
        """The thread writes the queue, makes a last call, and closes the writer."""
        self._queue.put(last)
        self._queue.put(None)

    def join(self, seconds: float) -> None:
        """After `end`: wait at most this long for the thread, and warn of records that were not written."""
        self._thread.join(seconds)
        if self._thread.is_alive():
            self._is_over = True
            abandon_at_exit(self._name)
            log.warning("%s did not finish in time and is abandoned; training goes on", self._name)
        if self._num_dropped:
            log.warning("%s: %d records were dropped", self._name, self._num_dropped)

    def _run(self) -> None:
        try:
            with contextlib.closing(self._open()) as writer:  # also after an error: it may have buffered records
                while (action := self._queue.get()) is not None and not self._is_over:
                    action(writer)
        except (Exception, SystemExit) as error:
            if not self._is_over:
                log.warning("%s failed and is dropped; training goes on: %s", self._name, describe_error(error))
            self._is_over = True


def end_all(writers: Sequence[BackgroundWriter], last: Action) -> None:
    """End all writers with a last call of each; together they have `CLOSE_SECONDS`."""
    for writer in writers:
        writer.end(last)
    deadline = time.monotonic() + CLOSE_SECONDS
    for writer in writers:
        writer.join(max(0.0, deadline - time.monotonic()))


def describe_error(error: BaseException) -> str:
    """An error's type and message as one line."""
    text = " ".join(str(error).split())
    return text if isinstance(error, OSError) else f"{type(error).__name__}: {text}"
