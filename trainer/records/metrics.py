"""Writes a run's figures by step to metrics.jsonl and to all trackers, which rank 0 does.

A tracker's writer works in a thread of its own: a slow or failing one neither delays nor ends training.
"""

import contextlib
import functools
import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from configs.components import Samples, Tracker, Writer
from configs.process.streams import hidden
from configs.process.text import to_json
from configs.process.with_torch import abandon_at_exit
from trainer.records.names import END_EVENT, by_tag, event_by_tag
from trainer.runs.layout import METRICS_FILE
from trainer.runs.metrics_file import LineFile, cut_back
from trainer.runs.status import EXIT_CODES

log = logging.getLogger(__name__)

MAX_QUEUED = 1000
"""Records that are queued for a slow writer; while the queue is full, new ones are dropped."""
CLOSE_SECONDS = 30.0
"""Time that all writers together have to write their queues when the run ends, and before a rewind."""

Action = Callable[[Writer], None]


class BackgroundWriter:
    """Opens a writer and calls it in a thread of its own, in order. A writer that raises is dropped with a warning."""

    def __init__(self, name: str, open_writer: Callable[[], Writer]) -> None:
        """Start the thread, which opens the writer.

        Args:
            name: the writer's name in warnings.
            open_writer: called in the thread, because it may have to wait for the network.
        """
        self._name, self._open = name, open_writer
        self._queue: queue.SimpleQueue[Action | None] = queue.SimpleQueue()
        self._num_dropped = 0
        self._is_over = False  # it has failed, or was abandoned
        self._thread = threading.Thread(target=self._run, name=f"tracker {name}", daemon=True)
        self._thread.start()

    def put(self, action: Action) -> None:
        """Queue a call of the writer; returns at once."""
        if self._is_over:
            return
        if self._queue.qsize() < MAX_QUEUED:
            self._queue.put(action)
            return
        self._num_dropped += 1
        if self._num_dropped == 1:
            said = "%s is too slow: records are dropped while %d are queued; training continues"
            log.warning(said, self._name, MAX_QUEUED)

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
            log.warning("%s did not finish in time and is abandoned; training continues", self._name)
        if self._num_dropped:
            log.warning("%s: %d records were dropped", self._name, self._num_dropped)

    def _run(self) -> None:
        try:
            with contextlib.closing(self._open()) as writer:  # also after an error: it may have buffered records
                while (action := self._queue.get()) is not None and not self._is_over:
                    action(writer)
        except (Exception, SystemExit) as error:
            if not self._is_over:
                log.warning("%s failed and is dropped; training continues: %s", self._name, describe_error(error))
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


_open: list["Metrics"] = []
"""Those of this process that are not closed."""


class Metrics:
    """Writes a run's figures to metrics.jsonl and to every tracker.

    On resume, everything written after the checkpoint's step is first removed. Each tracker works in a thread of its
    own. One that raises is dropped with a warning, and one that is too slow loses records: a tracker must never end or
    stall a run.
    """

    def __init__(
        self,
        folder: Path | None,
        *,
        resume_step: int = 0,
        trackers: Sequence[Tracker] = (),
        config: Mapping[str, Any] | None = None,
    ) -> None:
        """See the class.

        Args:
            folder: of the run; None on every rank but the first: nothing is written.
            resume_step: updates done.
            trackers: to be opened.
            config: of the run, for them.
        """
        self._file: LineFile | None = None
        self._writers: list[BackgroundWriter] = []
        if folder is None:
            return
        cut_back(folder / METRICS_FILE, resume_step)
        self._file = LineFile(folder / METRICS_FILE)
        self._step = max(resume_step, 0)
        for tracker in trackers:
            opening = functools.partial(tracker.open, folder, config=config or {}, resume_step=resume_step)
            self._writers.append(BackgroundWriter(type(tracker).__name__, opening))
        _open.append(self)

    def train(self, step: int, figures: Mapping[str, Any]) -> None:
        """Write the figures of a log step."""
        self._write("train", step, figures)
        self._show(step, by_tag("train", figures))

    def evaluation(self, step: int, figures: Mapping[str, Any], samples: Samples) -> None:
        """Write the scores of an evaluation, and sample translations."""
        self._write("evaluation", step, figures)
        self._show(step, by_tag("valid", figures), samples)

    def late_scores(self, step: int, figures: Mapping[str, Any]) -> None:
        """Write scores that were computed after their step's evaluation."""
        self._write("score", step, figures)
        self._show(step, by_tag("valid", figures))

    def event(self, step: int, figures: Mapping[str, Any]) -> None:
        """Write something that happened."""
        self._write("event", step, figures)
        if numbers := event_by_tag(figures):
            self._show(step, numbers)
            return
        for writer in self._writers:
            writer.put(lambda opened: opened.event(step, figures))

    def close(self, outcome: str = "finished", reason: str | None = None) -> None:
        """Flush and close; waits at most `CLOSE_SECONDS` for the trackers to write their queues.

        Args:
            outcome: of this start: a state of status.json.
            reason: what ended it.
        """
        if self._file is None:
            return
        _open.remove(self)
        self._file.close()
        end = {"event": END_EVENT, "outcome": outcome, "exit_code": EXIT_CODES.get(outcome, 1), "reason": reason}
        end_all(self._writers, lambda writer: writer.event(self._step, end))

    def _write(self, kind: str, step: int, figures: Mapping[str, Any]) -> None:
        if self._file is not None:
            self._step = max(self._step, step)  # late scores belong to an earlier one
            self._file.write(to_json({"kind": kind, "step": step, **figures}))

    def _show(self, step: int, figures: Mapping[str, float], samples: Samples = ()) -> None:
        for writer in self._writers:
            writer.put(lambda opened: opened.write(step, figures, samples))


def close_open(outcome: str, reason: str | None) -> None:
    """Close what a run that has failed, or was refused, has left open: a tracker would show it as running for ever."""
    for metrics in [*_open]:
        metrics.close(outcome, reason and hidden(reason))
