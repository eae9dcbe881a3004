"""A tracker's writer behind a thread: whatever it does, training neither waits for it nor ends by it."""

import collections
import logging
import threading
import time
from collections.abc import Callable

from configs.components import Writer
from trainer.runs.process.leaving import leave_behind

log = logging.getLogger(__name__)

MOST_WAITING = 1000
"""Records that may wait for a slow writer; what comes while so many do is dropped."""
CLOSE_SECONDS = 30.0
"""At the end, and before a rewind, a writer has so long to write what waits."""

Action = Callable[[Writer], None]


class BackgroundWriter:
    """Opens a writer and calls it in a thread of its own, in order; gives it up, with a warning, where it raises."""

    def __init__(self, name: str, open_writer: Callable[[], Writer], *, most_waiting: int = MOST_WAITING) -> None:
        """Begin to open it.

        Args:
            name: for warnings.
            open_writer: is called in the thread, since it may look for a network.
            most_waiting: records.
        """
        self._name = name
        self._open = open_writer
        self._most_waiting = most_waiting
        self._waiting: collections.deque[Action] = collections.deque()
        self._changed = threading.Condition()
        self._is_over = False  # nothing more is taken: it was closed or given up
        self._is_given_up = False
        self._is_abandoned = False
        self._ended = 0.0
        self._num_dropped = 0
        self._thread = threading.Thread(target=self._run, name=f"tracker {name}", daemon=True)
        self._thread.start()

    def put(self, action: Action) -> None:
        """Have the writer do something after all before it; returns at once."""
        with self._changed:
            if self._is_over:
                return
            if len(self._waiting) < self._most_waiting:
                self._waiting.append(action)
                self._changed.notify()
                return
            self._num_dropped += 1
        if self._num_dropped == 1:
            log.warning(
                "%s does not keep up, training goes on: what comes while %d records wait is dropped",
                self._name,
                self._most_waiting,
            )

    def end(self) -> None:
        """Take nothing more; the thread writes what waits, and closes the writer."""
        self._ended = time.monotonic()
        with self._changed:
            self._is_over = True
            self._changed.notify()

    def join(self, seconds: float = CLOSE_SECONDS) -> None:
        """After `end`: wait for the thread, but no longer than so many seconds, and say what was not written."""
        self._thread.join(seconds)
        if self._thread.is_alive():
            self._is_abandoned = True
            leave_behind(self._name)
            waited = time.monotonic() - self._ended
            log.warning("%s did not end within %.0f s and is left, training goes on", self._name, waited)
        if self._num_dropped:
            log.warning("%s: %d records were dropped", self._name, self._num_dropped)

    def _run(self) -> None:
        try:
            writer = self._open()
        except (Exception, SystemExit) as error:
            self._give_up("dropped", error)
            return
        try:
            while (action := self._next()) is not None:
                action(writer)
        except (Exception, SystemExit) as error:
            self._give_up("given up", error)
        if not self._is_abandoned:  # one that was given up too: what it has taken so far may lie in a buffer
            try:
                writer.close()
            except (Exception, SystemExit) as error:
                self._give_up("given up", error)

    def _give_up(self, said: str, error: BaseException) -> None:
        with self._changed:
            self._is_over = True
            self._waiting.clear()
        if not self._is_given_up and not self._is_abandoned:
            log.warning("%s is %s, training goes on: %s", self._name, said, describe_error(error))
        self._is_given_up = True

    def _next(self) -> Action | None:
        with self._changed:
            while not self._waiting and not self._is_over:
                self._changed.wait()
            return self._waiting.popleft() if self._waiting and not self._is_abandoned else None


def join_all(writers: list[BackgroundWriter], seconds: float = CLOSE_SECONDS) -> None:
    """End them side by side, all within so many seconds."""
    for writer in writers:
        writer.end()
    last = time.monotonic() + seconds
    for writer in writers:
        writer.join(max(0.0, last - time.monotonic()))


def describe_error(error: BaseException) -> str:
    """What an error says, in a line."""
    text = " ".join(str(error).split())
    return text if isinstance(error, OSError) else f"{type(error).__name__}: {text}"
