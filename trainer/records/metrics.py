"""metrics.jsonl and the trackers: the same figures, by step. Only rank 0 writes."""

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from configs.components import Tracker, Writer
from configs.text import to_json
from trainer.inference.translation.words import Attention
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
        self,
        step: int,
        figures: Mapping[str, Any],
        samples: Sequence[tuple[str, str, str]],
        attentions: Sequence[Attention],
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

    On resume, what was written after the checkpoint's step is cut away first. A tracker that raises, whatever it is, is
    given up with a warning: no place to watch a run in may end it.
    """

    def __init__(
        self,
        folder: Path,
        *,
        resume_step: int,
        trackers: Sequence[Tracker] = (),
        config: Mapping[str, Any] | None = None,
    ) -> None:
        path = folder / METRICS_FILE
        cut_back(path, resume_step)
        self._file = path.open("a", encoding="utf-8", buffering=1)
        self._writers: dict[str, Writer] = {}
        for number, tracker in enumerate(trackers):
            name = type(tracker).__name__
            name = name if name not in self._writers else f"{name} {number}"
            try:
                self._writers[name] = tracker.open(folder, config=config or {}, resume_step=resume_step)
            except Exception as error:
                log.warning("%s is dropped, training goes on: %s", name, said(error))

    def train(self, step: int, figures: Mapping[str, Any]) -> None:
        """See Metrics."""
        self._write({"kind": "train", "step": step, **figures})
        self._tell(lambda writer: writer.train(step, figures))

    def evaluation(
        self,
        step: int,
        figures: Mapping[str, Any],
        samples: Sequence[tuple[str, str, str]],
        attentions: Sequence[Attention],
    ) -> None:
        """See Metrics."""
        self._write({"kind": "evaluation", "step": step, **figures})
        self._tell(lambda writer: writer.evaluation(step, figures, samples, attentions))

    def late_scores(self, step: int, figures: Mapping[str, Any]) -> None:
        """See Metrics. To a tracker they are an evaluation's."""
        self._write({"kind": "score", "step": step, **figures})
        self._tell(lambda writer: writer.evaluation(step, figures, (), ()))

    def event(self, step: int, figures: Mapping[str, Any]) -> None:
        """See Metrics."""
        self._write({"kind": "event", "step": step, **figures})
        self._tell(lambda writer: writer.event(step, figures))

    def close(self) -> None:
        """See Metrics."""
        self._file.close()
        self._tell(lambda writer: writer.close())

    def _write(self, line: Mapping[str, Any]) -> None:
        try:
            self._file.write(to_json(line) + "\n")
        except OSError as error:
            log.warning("metrics.jsonl: %s", error)

    def _tell(self, action: Callable[[Writer], None]) -> None:
        for name, writer in list(self._writers.items()):
            try:
                action(writer)
            except Exception as error:
                log.warning("%s is given up, training goes on: %s", name, said(error))
                del self._writers[name]


def said(error: Exception) -> str:
    """What an error says, in a line."""
    text = " ".join(str(error).split())
    return text if isinstance(error, OSError) else f"{type(error).__name__}: {text}"
