"""Metrics that are commands: they run while training continues, and each score is logged at the step it belongs to.

Only rank 0 has a queue. One command runs at a time, and whatever it does, training makes the same updates.
Scores that a run has not waited for are lost: `zeromt evaluate RUN --metrics` computes them.
"""

import logging
import statistics
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from configs import RunConfig
from configs.components.training import SIGNATURE
from configs.evaluation import QueuedMetric
from configs.process.streams import hidden
from trainer.checkpoint.state import TrainerState
from trainer.evaluation.scores import Evaluation
from trainer.evaluation.sets import HeldOutSet
from trainer.metrics.command import NoScoreError, Scoring, lines_of
from trainer.records.metrics import Metrics
from trainer.runs.layout import METRICS_FILE
from trainer.runs.metrics_file import read_lines

log = logging.getLogger(__name__)

_WAIT_SECONDS = 0.2


class ScoreQueue:
    """The scores that a run waits for. No method raises a command's error, and only `finish` waits for a command."""

    def __init__(
        self, config: RunConfig, held_out: Sequence[HeldOutSet], state: TrainerState, metrics: Metrics
    ) -> None:
        """Begin, with none.

        Args:
            config: the run's.
            held_out: the sets that are scored.
            state: gets the scores, and those that came after its checkpoint was saved.
            metrics: gets a line for each score.
        """
        self._section, self._held_out, self._state, self._metrics = config.evaluation, held_out, state, metrics
        self._waiting: deque[tuple[int, QueuedMetric, list[dict[str, Any]]]] = deque()
        self._running: Scoring | None = None
        """For the first that waits."""
        for line in read_lines(Path(config.folder) / METRICS_FILE, having='"score"'):
            if line.get("kind") == "score" and line.get("series") in state.measured.values():
                state.note(int(line["step"]), line)

    def add(self, step: int, evaluation: Evaluation) -> None:
        """Ask for the scores of an evaluation's translations."""
        parts = evaluation.parts or {self._held_out[0].name: evaluation}
        lines: list[dict[str, Any]] = []
        for one in self._held_out:
            lines += lines_of(one.name, one.languages, one.sources, parts[one.name].hypotheses, one.references)
        self._waiting += [(step, metric, lines) for metric in self._section.queued]
        self.poll()

    def poll(self) -> None:
        """Log a score that has come, and start the next command. Cheap."""
        while self._waiting:
            step, metric, lines = self._waiting[0]
            try:
                self._running = self._running or Scoring(metric, lines)
                if (scores := self._running.scores()) is None:
                    return
            except (NoScoreError, OSError) as error:
                log.warning("step %d: no %s; training continues: %s", step, metric.name, error)
                said = {"event": "no_score", "metric": metric.name, "of_step": step, "problem": hidden(str(error))}
                self._metrics.event(max(step, self._state.step), said)
            else:
                self._note(step, metric, scores)
            self._running = None
            self._waiting.popleft()

    def finish(self, *, seconds: float, stop_requested: Callable[[], bool]) -> None:
        """Wait for the scores that have not come, unless a stop is requested; what has not come then is lost.

        Args:
            seconds: to wait at most.
            stop_requested: whether a stop was requested.
        """
        until = time.monotonic() + seconds
        if self._waiting:
            log.info("%d scores are awaited, for at most %.0f s", len(self._waiting), seconds)
        while self._waiting and time.monotonic() < until and not stop_requested():
            self.poll()
            time.sleep(_WAIT_SECONDS)
        self.close()

    def close(self) -> None:
        """Kill the running command, and say which scores are lost."""
        if self._running is not None:
            self._running.end()
        if self._waiting:
            lost = ", ".join(f"{metric.name} of step {step:,}" for step, metric, _ in self._waiting)
            log.warning("not waited for any longer: %s; `zeromt evaluate --metrics` computes them", lost)
        self._running = None
        self._waiting.clear()

    def _note(self, step: int, metric: QueuedMetric, scores: dict[str, float]) -> None:
        """Log the mean over the validation sets and, if there are several sets, each set's score."""
        key, valid = metric.name, [one.name for one in self._held_out if one.role == "validation"]
        score = statistics.fmean(scores[name] for name in valid)
        each = {f"{key}/{name}": value for name, value in scores.items()} if len(scores) > 1 else {}
        self._state.note(step, {key: score})
        of_score = {f"{key}{SIGNATURE}": metric.signature, "series": self._state.measured.get(key)}
        self._metrics.late_scores(step, {key: score, **each, **of_score})
        log.info("step %d  %s %.*f", step, key, metric.digits, score)
