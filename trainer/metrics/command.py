"""Metrics that are commands, such as neural ones: started with the lines to score, asked for the scores, ended."""

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
from collections.abc import Iterator, Sequence
from typing import Any

from configs.evaluation import QueuedMetric

log = logging.getLogger(__name__)

_START = """
import ctypes, os, signal, subprocess, sys
signal.signal(signal.SIGTERM, lambda *_: os.killpg(0, signal.SIGKILL))
ctypes.CDLL(None).prctl(1, signal.SIGTERM)
os.nice(19)
code = subprocess.call(sys.argv[1:])
sys.exit(code if code >= 0 else 128 - code)
"""
"""Runs the command at the lowest priority. If the process that started it ends (PR_SET_PDEATHSIG), so do the command
and what the command has started."""
_OF_RANKS = ("TORCHELASTIC_", "LOCAL_", "GROUP_", "ROLE_", "MASTER_", "RANK", "WORLD_SIZE", "TORCH_NCCL_")
"""Variables by which a command would take itself for one of the ranks."""


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
        self._files = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115 (until it ends)
        variables = {name: value for name, value in os.environ.items() if not name.startswith(_OF_RANKS)}
        with tempfile.TemporaryFile("w+", encoding="utf-8") as stdin:
            stdin.writelines(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines)
            stdin.seek(0)
            self._process = subprocess.Popen(
                [sys.executable, "-Ic", _START, *metric.command],
                stdin=stdin,
                stdout=self._files[0],
                stderr=self._files[1],
                env={**variables, "CUDA_VISIBLE_DEVICES": metric.devices},
                start_new_session=True,
            )
        self._until = time.monotonic() + 60 * metric.timeout_minutes

    def scores(self, seconds: float = 0) -> dict[str, float] | None:
        """The score of each set, or None if the command has not ended after `seconds`.

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
        out, err = (os.pread(file.fileno(), 1 << 24, 0).decode(errors="replace").strip() for file in self._files)
        if code := self._process.returncode:
            raise NoScoreError(f"ended with exit code {code}; its last words: {err[-300:]!r}")
        return parsed(out, self._sets)

    def end(self) -> None:
        """Kill the command and the processes that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def score_by(metric: QueuedMetric, lines: Sequence[dict[str, Any]]) -> float:
    """The score that a command gives to the lines of one set, or NaN and a warning."""
    try:
        scoring = Scoring(metric, lines)
        while (scores := scoring.scores(seconds=1)) is None:
            pass
    except (NoScoreError, OSError) as error:
        log.warning("evaluation: %s has no score: %s", metric.name, error)
        return math.nan
    return next(iter(scores.values()))


def lines_of(
    name: str,
    languages: Sequence[str],
    sources: Sequence[str],
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
) -> Iterator[dict[str, Any]]:
    """What a command reads of a set, of whose first pairs there are translations."""
    for source, hypothesis, *each in zip(sources, hypotheses, *references, strict=False):
        yield {
            "set": name,
            "languages": list(languages),
            "source": source,
            "hypothesis": hypothesis,
            "references": each,
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
