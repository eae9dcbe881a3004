"""Metrics that are commands: they run beside the training, and their scores are logged at the steps that they are of.

Only rank 0 has a queue. One command runs at a time, and whatever it does, training goes on with the same updates.
Scores that a run has not waited for are lost: `zeromt evaluate RUN --metrics` computes them.
"""

import contextlib
import json
import logging
import math
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from configs import RunConfig
from configs.components.training import SIGNATURE
from configs.evaluation import QueuedMetric
from configs.process.streams import hidden
from trainer.checkpoint.state import TrainerState
from trainer.evaluation.best import beside_best, described
from trainer.evaluation.outcome import Evaluation
from trainer.evaluation.sets import HeldOutSet, SetText
from trainer.records.metrics import Metrics
from trainer.runs.layout import METRICS_FILE
from trainer.runs.metrics_file import read_lines

log = logging.getLogger(__name__)

_START = "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9); os.nice(19); os.execvp(sys.argv[1], sys.argv[1:])"
"""Becomes the command, at the lowest priority, and ends with the process that started it (PR_SET_PDEATHSIG)."""
_OF_RANKS = ("TORCHELASTIC_", "LOCAL_", "GROUP_", "ROLE_", "MASTER_", "RANK", "WORLD_SIZE", "TORCH_NCCL_")
"""Variables by which a command would take itself for one of the ranks."""


_WAIT_SECONDS = 0.2


class NoScoreError(Exception):
    """A command gave no valid scores."""


class Scoring:
    """A command that has been started."""

    def __init__(self, metric: QueuedMetric, lines: Sequence[dict[str, Any]]) -> None:
        """Start it.

        Args:
            metric: with the command.
            lines: see `lines_of`.

        Raises:
            OSError: there is no room for what it reads, or for a process.
        """
        self.metric = metric
        self._sets = [line["set"] for line in lines]
        self._out, self._err = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115 (until it ends)
        variables = {name: value for name, value in os.environ.items() if not name.startswith(_OF_RANKS)}
        with tempfile.TemporaryFile("w+", encoding="utf-8") as stdin:
            stdin.writelines(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines)
            stdin.seek(0)
            self._process = subprocess.Popen(
                [sys.executable, "-Ic", _START, *metric.command],
                stdin=stdin,
                stdout=self._out,
                stderr=self._err,
                env={**variables, "CUDA_VISIBLE_DEVICES": metric.devices},
                start_new_session=True,
            )
        self._until = time.monotonic() + 60 * metric.timeout_minutes

    def scores(self, seconds: float = 0) -> dict[str, float] | None:
        """The score of each set, or None if the command has not ended after so many seconds.

        Raises:
            NoScoreError: it failed, took too long or answered something else.
        """
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            if time.monotonic() < self._until:
                return None
            self.end()
            raise NoScoreError(f"took longer than {self.metric.timeout_minutes:g} minutes and was killed") from None
        self.end()  # also what it has left behind
        out, err = _text(self._out), _text(self._err)
        if code := self._process.returncode:
            raise NoScoreError(f"ended with exit code {code}; its last words: {err[-300:]!r}")
        return parsed(out, self._sets)

    def end(self) -> None:
        """Kill the command and the processes that it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


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
        lines = [line for one in self._held_out for line in lines_of(one, parts[one.name].hypotheses)]
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
                self._failed(step, metric, str(error))
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
        shown = described(self._section, key)
        beside = beside_best(self._state.scores.get(key, {}), step, score, shown)
        more = f"  {beside.text}" if key == self._state.best_by and beside.text else ""
        log.info("step %d  %s %.*f%s", step, key, shown.digits, score, more)

    def _failed(self, step: int, metric: QueuedMetric, problem: str) -> None:
        log.warning("step %d: no %s, training goes on: %s", step, metric.name, problem)
        event = {"event": "no_score", "metric": metric.name, "of_step": step, "problem": hidden(problem)}
        self._metrics.event(max(step, self._state.step), event)


def score_by(metric: QueuedMetric, text: SetText, hypotheses: Sequence[str]) -> float:
    """The score that a command gives to the translations of a set, or NaN and a warning."""
    try:
        scoring = Scoring(metric, list(lines_of(text, hypotheses)))
        while (scores := scoring.scores(seconds=1)) is None:
            pass
    except (NoScoreError, OSError) as error:
        log.warning("evaluation: %s has no score: %s", metric.name, error)
        return math.nan
    return scores[text.name]


def lines_of(text: SetText, hypotheses: Sequence[str]) -> Iterator[dict[str, Any]]:
    """What a command reads of a set, of whose first pairs there are translations."""
    for source, hypothesis, *references in zip(text.sources, hypotheses, *text.references, strict=False):
        yield {
            "set": text.name,
            "languages": list(text.languages),
            "source": source,
            "hypothesis": hypothesis,
            "references": references,
        }


def parsed(answer: str, sets: Sequence[str]) -> dict[str, float]:
    """The score of each set: the mean of its lines.

    Args:
        answer: a command's, a number a line.
        sets: the name of each line's set.

    Raises:
        NoScoreError: the answer has another form.
    """
    by_set: dict[str, list[float]] = {}
    with contextlib.suppress(ValueError):
        for name, line in zip(sets, answer.splitlines(), strict=True):
            by_set.setdefault(name, []).append(float(line))
        scores = {name: statistics.fmean(numbers) for name, numbers in by_set.items()}
        if all(map(math.isfinite, scores.values())):
            return scores
    raise NoScoreError(f"answered {answer[:60]!r}; expected {len(sets)} lines of a number each")


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace").strip()
