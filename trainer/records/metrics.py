"""Writes a run's figures by step to metrics.jsonl and to all trackers. Only rank 0 writes."""

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from configs.components import Samples, Tracker
from configs.process.streams import hidden
from configs.process.text import to_json
from trainer.records.background import Action, BackgroundWriter, end_all
from trainer.records.names import END_EVENT
from trainer.runs.layout import METRICS_FILE
from trainer.runs.metrics_file import LineFile, cut_back
from trainer.runs.status import exit_code

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
        self._write("train", step, figures, lambda writer: writer.train(step, figures))

    def evaluation(self, step: int, figures: Mapping[str, Any], samples: Samples) -> None:
        """Write the scores of an evaluation, and sample translations."""
        self._write("evaluation", step, figures, lambda writer: writer.evaluation(step, figures, samples))

    def late_scores(self, step: int, figures: Mapping[str, Any]) -> None:
        """Write scores that were computed after their step's evaluation; trackers receive them as an evaluation."""
        self._write("score", step, figures, lambda writer: writer.evaluation(step, figures, ()))

    def event(self, step: int, figures: Mapping[str, Any]) -> None:
        """Write something that happened."""
        self._write("event", step, figures, lambda writer: writer.event(step, figures))

    def close(self, outcome: str = "finished", reason: str | None = None) -> None:
        """Flush and close; waits at most `background.CLOSE_SECONDS` for the trackers to write their queues.

        Args:
            outcome: of this start: a state of status.json.
            reason: what ended it.
        """
        if self._file is None:
            return
        _open.remove(self)
        self._file.close()
        end = {"event": END_EVENT, "outcome": outcome, "exit_code": exit_code(outcome), "reason": reason}
        end_all(self._writers, lambda writer: writer.event(self._step, end))

    def _write(self, kind: str, step: int, figures: Mapping[str, Any], action: Action) -> None:
        if self._file is None:
            return
        self._step = max(self._step, step)  # late scores belong to an earlier one
        self._file.write(to_json({"kind": kind, "step": step, **figures}))
        for writer in self._writers:
            writer.put(action)


def close_open(outcome: str, reason: str | None) -> None:
    """Close what a run that has failed, or was refused, has left open: a tracker would show it as running for ever."""
    for metrics in [*_open]:
        metrics.close(outcome, reason and hidden(reason))
