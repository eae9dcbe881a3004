"""metrics.jsonl and the trackers: the same figures, by step. Only rank 0 writes."""

import functools
import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from configs.components import Samples, Tracker, Writer
from configs.text import to_json
from trainer.inference.translation.words import Attention
from trainer.records.background import Action, BackgroundWriter, join_all
from trainer.records.names import WRITING_SECONDS
from trainer.runs.layout import METRICS_FILE
from trainer.runs.metrics_file import cut_back

log = logging.getLogger(__name__)


class Metrics(Writer, Protocol):
    """Where a run's figures go: metrics.jsonl and every tracker's writer."""

    def late_scores(self, step: int, figures: Mapping[str, Any]) -> None:
        """Scores that have come after their step's evaluation."""
        ...


class NoMetrics:
    """What every rank but the first has."""

    def train(self, step: int, figures: Mapping[str, Any]) -> None:
        """Nothing."""

    def evaluation(
        self, step: int, figures: Mapping[str, Any], samples: Samples, attentions: Sequence[Attention]
    ) -> None:
        """Nothing."""

    def late_scores(self, step: int, figures: Mapping[str, Any]) -> None:
        """Nothing."""

    def event(self, step: int, figures: Mapping[str, Any]) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class RunMetrics:
    """Writes a run's figures: to metrics.jsonl, and to every tracker.

    On resume, what was written after the checkpoint's step is cut away first. Trackers work behind threads: one that
    raises, whatever it is, is given up with a warning, and one that is slow loses records. No place to watch a run in
    may end or stall it.
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
        self._file = path.open("a", encoding="utf-8", buffering=1)
        self._writers: dict[str, BackgroundWriter] = {}
        self._seconds = 0.0
        for number, tracker in enumerate(trackers):
            name = type(tracker).__name__
            name = name if name not in self._writers else f"{name} {number}"
            opening = functools.partial(tracker.open, folder, config=config or {}, resume_step=resume_step)
            self._writers[name] = BackgroundWriter(name, opening)

    def train(self, step: int, figures: Mapping[str, Any]) -> None:
        """See Metrics. `writing_seconds`: what the loop itself has spent here since it was last called."""
        spent, self._seconds = self._seconds, 0.0
        figures = {**figures, WRITING_SECONDS: round(spent, 6)}
        self._write("train", step, figures, lambda writer: writer.train(step, figures))

    def evaluation(
        self, step: int, figures: Mapping[str, Any], samples: Samples, attentions: Sequence[Attention]
    ) -> None:
        """See Metrics."""
        self._write("evaluation", step, figures, lambda writer: writer.evaluation(step, figures, samples, attentions))

    def late_scores(self, step: int, figures: Mapping[str, Any]) -> None:
        """See Metrics. To a tracker they are an evaluation's."""
        self._write("score", step, figures, lambda writer: writer.evaluation(step, figures, (), ()))

    def event(self, step: int, figures: Mapping[str, Any]) -> None:
        """See Metrics."""
        self._write("event", step, figures, lambda writer: writer.event(step, figures))

    def close(self) -> None:
        """See Metrics. Writers have `background.CLOSE_SECONDS` to write what waits."""
        self._file.close()
        join_all(list(self._writers.values()))

    def _write(self, kind: str, step: int, figures: Mapping[str, Any], action: Action) -> None:
        begin = time.perf_counter()
        try:
            self._file.write(to_json({"kind": kind, "step": step, **figures}) + "\n")
        except OSError as error:
            log.warning("metrics.jsonl: %s", error)
        for writer in self._writers.values():
            writer.put(action)
        self._seconds += time.perf_counter() - begin
