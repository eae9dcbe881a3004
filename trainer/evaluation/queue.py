"""Scores that come late: a metric that is a command runs while training goes on, and is logged at the step it is of.

Only rank 0 has a queue. A request is a file in the run's folder, `eval/queue/step-NNNNNNNN.METRIC.HASH.jsonl`, which
exists from the evaluation until its score has come, so that a restart loses none. HASH is of the score's series and the
sets: a run that is restarted with another evaluation drops requests that no longer belong to it. One command runs at a
time. Whatever a command does, training goes on with the same updates.
"""

import contextlib
import hashlib
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configs import RunConfig
from configs.components.training import SIGNATURE
from configs.evaluation import EvaluationSection, QueuedMetric
from configs.process.files import TEMPORARY, inside
from configs.process.streams import hidden
from trainer.checkpoint.state import TrainerState
from trainer.evaluation import scoring_process
from trainer.evaluation.best import beside_best, of_queued
from trainer.evaluation.outcome import Evaluation
from trainer.evaluation.sets import HeldOutSet
from trainer.records.metrics import Metrics
from trainer.runs.layout import EVALUATIONS, METRICS_FILE, QUEUE, step_folder, step_of
from trainer.runs.metrics_file import read_lines

log = logging.getLogger(__name__)

_WAIT_SECONDS = 0.2


@dataclass(kw_only=True, slots=True, frozen=True)
class Request:
    """A score that has been requested and has not come yet."""

    step: int
    metric: QueuedMetric
    path: Path
    """The file that the command reads."""

    @property
    def result(self) -> Path:
        """The file with its result."""
        return self.path.with_suffix(".score")


def score_queue(
    config: RunConfig, held_out: Sequence[HeldOutSet], state: TrainerState, metrics: Metrics
) -> "ScoreQueue | None":
    """The queue of a run, on rank 0; None if no metric is queued or there is nothing to score."""
    if not config.evaluation.queued or not held_out:
        return None
    of_ranks = ("TORCHELASTIC_", "LOCAL_", "GROUP_", "ROLE_", "MASTER_", "RANK", "WORLD_SIZE", "TORCH_NCCL_")
    return ScoreQueue(
        config.evaluation,
        folder=Path(config.folder),
        held_out=held_out,
        state=state,
        metrics=metrics,
        variables={name: value for name, value in os.environ.items() if not name.startswith(of_ranks)},
    )


class ScoreQueue:
    """The scores that a run waits for. No method raises a command's error, and only `finish` waits for a command."""

    def __init__(
        self,
        section: EvaluationSection,
        *,
        folder: Path,
        held_out: Sequence[HeldOutSet],
        state: TrainerState,
        metrics: Metrics,
        variables: dict[str, str],
    ) -> None:
        """Take over the requests of an earlier start whose steps the run still has.

        Args:
            section: with the metrics.
            folder: the run's.
            held_out: the sets that are scored.
            state: gets the scores.
            metrics: gets a line for each score.
            variables: the commands' environment, except for `CUDA_VISIBLE_DEVICES`.
        """
        self._metrics_by_name = {metric.name: metric for metric in section.queued}
        self._most_pairs = section.max_pairs
        self._folder = folder / EVALUATIONS / QUEUE
        self._held_out = held_out
        self._state = state
        self._metrics = metrics
        self._variables = variables
        self._waiting: list[Request] = []
        self._running: tuple[Request, subprocess.Popen[bytes]] | None = None
        self.seconds = 0.0
        """Seconds that this process has spent in this class."""
        self._note_known(folder / METRICS_FILE)
        self._take_up()

    @property
    def awaited(self) -> frozenset[int]:
        """The steps of which it is not known yet whether they are among the best."""
        requests = [*self._waiting, *([self._running[0]] if self._running else [])]
        return frozenset(one.step for one in requests if one.metric.name == self._state.best_by)

    def add(self, step: int, evaluation: Evaluation) -> None:
        """Request the scores of an evaluation's translations."""
        begin = time.monotonic()
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            lines = "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in self._lines(evaluation))
            for metric in self._metrics_by_name.values():
                path = self._folder / f"{step_folder(step)}.{metric.name}.{self._place_of(metric.name)}.jsonl"
                inside.write_text(path, lines)
                self._waiting.append(Request(step=step, metric=metric, path=path))
                self._give_up_oldest(metric)
        except OSError as error:
            log.warning("%s cannot be written, training goes on without its scores: %s", self._folder, error)
        self.seconds += time.monotonic() - begin
        self.poll()

    def poll(self) -> None:
        """Log a score that has come, and start the next command. Cheap."""
        if self._running is None and not self._waiting:
            return
        begin = time.monotonic()
        if self._running is not None and self._running[1].poll() is not None:
            self._take_result(*self._running)
            self._running = None
        if self._running is None and self._waiting:
            self._start(self._waiting.pop(0))
        self.seconds += time.monotonic() - begin

    def finish(self, *, seconds: float, stop_requested: Callable[[], bool]) -> None:
        """Wait for the outstanding scores, unless a stop is requested; what is left waits for the next start.

        Args:
            seconds: to wait at most.
            stop_requested: whether a stop was requested.
        """
        loop_seconds = self.seconds
        until = time.monotonic() + seconds
        if self._waiting or self._running:
            log.info("%d scores are awaited, for at most %.0f s", len(self._waiting) + bool(self._running), seconds)
        while (self._waiting or self._running) and time.monotonic() < until and not stop_requested():
            self.poll()
            time.sleep(_WAIT_SECONDS)
        self.close()
        self._metrics.event(self._state.step, {"event": "queue", "loop_seconds": round(loop_seconds, 4)})

    def close(self) -> None:
        """Kill the running command; its request stays."""
        if self._running is not None:
            request, process = self._running
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            if process.poll() is None:
                process.kill()
                process.wait()
            self._waiting.insert(0, request)
            self._running = None
        if self._waiting:
            steps = ", ".join(f"{one.metric.name} of step {one.step:,}" for one in self._waiting)
            log.info("scores that have not come, and are asked for again at the next start: %s", steps)
            self._waiting = []

    def _lines(self, evaluation: Evaluation) -> list[dict[str, Any]]:
        """The lines that a command reads, of all sets."""
        parts = evaluation.parts or {self._held_out[0].name: evaluation}
        records = []
        for held_out in self._held_out:
            part = parts[held_out.name]
            references = zip(*(lines[: self._most_pairs] for lines in held_out.references), strict=True)
            for source, hypothesis, each in zip(part.sources, part.hypotheses, references, strict=True):
                records.append(
                    {
                        "set": held_out.name,
                        "languages": list(held_out.languages),
                        "source": source,
                        "hypothesis": hypothesis,
                        "references": list(each),
                    }
                )
        return records

    def _start(self, request: Request) -> None:
        command = [sys.executable, "-I", scoring_process.__file__, str(request.path), str(request.result)]
        command += [str(60 * request.metric.timeout_minutes), str(os.getpid()), *request.metric.command]
        variables = {**self._variables, "CUDA_VISIBLE_DEVICES": request.metric.devices}
        try:
            request.result.unlink(missing_ok=True)
            process = subprocess.Popen(command, env=variables, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        except OSError as error:  # out of memory or of processes, or a folder that cannot be written any more
            self._failed(request, f"cannot be started: {error}")
            return
        self._running = request, process

    def _take_result(self, request: Request, process: subprocess.Popen[bytes]) -> None:
        try:
            answer = inside.read_json(request.result)
        except (OSError, ValueError):
            code = process.returncode
            name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            answer = {"problem": f"was killed by {name}"}
        if "problem" in answer:
            self._failed(request, answer["problem"])
            return
        figures = self._figures(request.metric, answer["scores"])
        key = request.metric.name
        self._state.note(request.step, {key: figures[key]})
        self._metrics.late_scores(request.step, {**figures, "series": self._series(key)})
        shown = of_queued(request.metric)
        beside = beside_best(self._state.scores.get(key, {}), request.step, figures[key], shown)
        more = f"  {beside.text}" if key == self._state.best_by and beside.text else ""
        log.info("step %d  %s %.*f%s", request.step, key, shown.digits, figures[key], more)
        self._remove(request)

    def _figures(self, metric: QueuedMetric, scores: dict[str, float]) -> dict[str, Any]:
        """Named like an evaluation's: the mean over the validation sets and, if there are several, each set's."""
        role = {one.name: one.role for one in self._held_out}
        valid = [score for name, score in scores.items() if role.get(name) == "validation"]
        each = {f"{metric.name}/{name}": score for name, score in scores.items()} if len(scores) > 1 else {}
        return {metric.name: sum(valid) / len(valid), f"{metric.name}{SIGNATURE}": metric.signature, **each}

    def _series(self, figure: str) -> str | None:
        return self._state.measured.get(figure)

    def _place_of(self, figure: str) -> str:
        """A hash of what a figure's scores belong to: its series, and the names and roles of the sets."""
        place = [self._series(figure), [(one.name, one.role) for one in self._held_out]]
        return hashlib.sha256(json.dumps(place).encode()).hexdigest()[:12]

    def _failed(self, request: Request, problem: str) -> None:
        log.warning("step %d: no %s, training goes on: %s", request.step, request.metric.name, problem)
        event = {
            "event": "no_score",
            "metric": request.metric.name,
            "of_step": request.step,
            "problem": hidden(problem),
        }
        self._metrics.event(max(request.step, self._state.step), event)
        self._remove(request)

    def _give_up_oldest(self, metric: QueuedMetric) -> None:
        """Drop the oldest requests of a metric if too many wait."""
        waiting = [one for one in self._waiting if one.metric.name == metric.name]
        if len(waiting) > metric.most_waiting:
            oldest = waiting[0]
            self._waiting.remove(oldest)
            self._failed(oldest, f"{metric.most_waiting} newer ones wait already (evaluation.queued, most_waiting)")

    def _remove(self, request: Request) -> None:
        for path in (request.path, request.result):
            _unlink(path)

    def _note_known(self, path: Path) -> None:
        """Remember scores that came after the checkpoint that the run resumes from was saved."""
        for line in read_lines(path, having='"score"'):
            for name in self._metrics_by_name:
                if line.get("kind") == "score" and name in line and line.get("series") == self._series(name):
                    self._state.note(int(line["step"]), {name: float(line[name])})

    def _take_up(self) -> None:
        """Repeat outstanding requests, except for steps and metrics that the run no longer has or that have changed."""
        for path in sorted(self._folder.glob("*.jsonl")):
            folder, _, rest = path.name.removesuffix(".jsonl").partition(".")
            name, _, place = rest.rpartition(".")
            step, metric = step_of(Path(folder)), self._metrics_by_name.get(name)
            if step is None or metric is None or step > self._state.step:
                _unlink(path)
                continue
            request = Request(step=step, metric=metric, path=path)
            if place == self._place_of(name):
                self._waiting.append(request)
            else:
                self._failed(request, "sets, search or command have changed since it was asked for")
        for path in (*self._folder.glob("*.tmp"), *self._folder.glob(f"{TEMPORARY}*")):
            _unlink(path)


def _unlink(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)
