"""Writes a run's figures by step to metrics.jsonl and to all trackers. Only rank 0 writes."""

import functools
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from typing_extensions import override

from configs.components import Samples, Tracker, Writer
from configs.process.streams import hidden
from configs.process.text import to_json
from trainer.inference.translation.words import Attention
from trainer.records.background import Action, BackgroundWriter, join_all
from trainer.records.names import END_EVENT, WRITING_SECONDS
from trainer.runs.layout import METRICS_FILE
from trainer.runs.metrics_file import LineFile, cut_back
from trainer.runs.status import exit_code

_open: list["RunMetrics"] = []
"""Those of this process that are not closed."""


class Metrics(Writer, Protocol):
    """Where a run's figures go: metrics.jsonl and every tracker's writer."""

    def close(self, outcome: str = "finished", reason: str | None = None) -> None:
        """Flush and close.

        Args:
            outcome: of this start: a state of status.json.
            reason: what ended it.
        """
        ...

    def late_scores(self, step: int, figures: Mapping[str, Any]) -> None:
        """Scores that were computed after their step's evaluation had ended."""
        ...


class NoMetrics(Metrics):
    """Does nothing: the metrics of every rank except rank 0."""

    def train(self, step: int, figures: Mapping[str, Any]) -> None:
        """Do nothing."""

    def evaluation(
        self, step: int, figures: Mapping[str, Any], samples: Samples, attentions: Sequence[Attention]
    ) -> None:
        """Do nothing."""

    def late_scores(self, step: int, figures: Mapping[str, Any]) -> None:
        """Do nothing."""

    def event(self, step: int, figures: Mapping[str, Any]) -> None:
        """Do nothing."""

    def close(self, outcome: str = "finished", reason: str | None = None) -> None:
        """Do nothing."""


class RunMetrics(Metrics):
    """Writes a run's figures to metrics.jsonl and to every tracker.

    On resume, everything written after the checkpoint's step is first removed. Each tracker works in a thread of its
    own. One that raises is dropped with a warning, and one that is too slow loses records: a tracker must never end or
    stall a run.
    """

    def __init__(
        self,
        folder: Path,
        *,
        resume_step: int,
        phase: int | None = None,
        trackers: Sequence[Tracker] = (),
        config: Mapping[str, Any] | None = None,
    ) -> None:
        """See the class.

        Args:
            folder: of the run.
            resume_step: updates done.
            phase: number of the phase that the run is in, in a run with phases.
            trackers: to be opened.
            config: of the run, for them.
        """
        path = folder / METRICS_FILE
        cut_back(path, resume_step, phase=phase)
        self._file = LineFile(path)
        self._step = max(resume_step, 0)
        self._writers: dict[str, BackgroundWriter] = {}
        self._seconds = 0.0
        for number, tracker in enumerate(trackers):
            name = type(tracker).__name__
            name = name if name not in self._writers else f"{name} {number}"
            opening = functools.partial(tracker.open, folder, config=config or {}, resume_step=resume_step)
            self._writers[name] = BackgroundWriter(name, opening)
        _open.append(self)

    def train(self, step: int, figures: Mapping[str, Any]) -> None:
        """See Metrics. Adds `writing_seconds`, the time that the training loop has spent here since the last call."""
        spent, self._seconds = self._seconds, 0.0
        figures = {**figures, WRITING_SECONDS: round(spent, 6)}
        self._write("train", step, figures, lambda writer: writer.train(step, figures))

    @override
    def evaluation(
        self, step: int, figures: Mapping[str, Any], samples: Samples, attentions: Sequence[Attention]
    ) -> None:
        self._write("evaluation", step, figures, lambda writer: writer.evaluation(step, figures, samples, attentions))

    def late_scores(self, step: int, figures: Mapping[str, Any]) -> None:
        """See Metrics. Trackers receive them as an evaluation."""
        self._write("score", step, figures, lambda writer: writer.evaluation(step, figures, (), ()))

    @override
    def event(self, step: int, figures: Mapping[str, Any]) -> None:
        self._write("event", step, figures, lambda writer: writer.event(step, figures))

    def close(self, outcome: str = "finished", reason: str | None = None) -> None:
        """See Metrics. Waits at most `background.CLOSE_SECONDS` for the trackers to write their queues."""
        _open.remove(self)
        self._file.close()
        end = {"event": END_EVENT, "outcome": outcome, "exit_code": exit_code(outcome), "reason": reason}
        join_all(list(self._writers.values()), lambda writer: writer.event(self._step, end))

    def _write(self, kind: str, step: int, figures: Mapping[str, Any], action: Action) -> None:
        begin = time.perf_counter()
        self._step = max(self._step, step)  # late scores belong to an earlier one
        self._file.write(to_json({"kind": kind, "step": step, **figures}))
        for writer in self._writers.values():
            writer.put(action)
        self._seconds += time.perf_counter() - begin


def close_open(outcome: str, reason: str | None) -> None:
    """Close what a run that has failed, or was refused, has left open: a tracker would show it as running for ever."""
    for metrics in [*_open]:
        metrics.close(outcome, reason and hidden(reason))
