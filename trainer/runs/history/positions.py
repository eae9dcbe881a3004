"""history.jsonl in a run's folder: with what it was started, and where its data stood at every start and save.

    {"kind": "start", "step": 40, "stream": {...}, "left_out": [[0, 14, 17]], "config": "...", "versions": {...}, ...}
    {"kind": "position", "step": 60, "stream": {...}}

From the line before an update on, its data are a function of the settings alone. A rewind is a start too. Lines of
later steps are cut away at a resume.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from trainer.runs.history.skipped import LEFT_OUT, SkippedRange, read_ranges
from trainer.runs.layout import HISTORY_FILE
from trainer.runs.metrics_file import Line, cut_back, read_lines, whole

log = logging.getLogger(__name__)


class History(Protocol):
    """Where a run's data stood."""

    def start(
        self, step: int, stream: Mapping[str, Any], skipped: Sequence[SkippedRange], started: Mapping[str, Any]
    ) -> None:
        """Note a start, or a rewind.

        Args:
            step: updates done.
            stream: `StreamState.to_json`, of all lanes.
            skipped: ranges of updates that are not trained on.
            started: with what: configuration, versions, fingerprints.
        """
        ...

    def position(self, step: int, stream: Mapping[str, Any]) -> None:
        """Note where the stream stands at a save."""
        ...


class NoHistory:
    """What every rank but the first has."""

    def start(
        self, step: int, stream: Mapping[str, Any], skipped: Sequence[SkippedRange], started: Mapping[str, Any]
    ) -> None:
        """Nothing."""

    def position(self, step: int, stream: Mapping[str, Any]) -> None:
        """Nothing."""


class HistoryFile:
    """Writes history.jsonl. A disk that is full does not end the run: what is missing is looked for in checkpoints."""

    def __init__(self, run: Path, *, resume_step: int) -> None:
        """Cut away what was written of later steps.

        Raises:
            OSError: it cannot be read or written.
        """
        self._path = run / HISTORY_FILE
        cut_back(self._path, resume_step)

    def start(
        self, step: int, stream: Mapping[str, Any], skipped: Sequence[SkippedRange], started: Mapping[str, Any]
    ) -> None:
        """See History."""
        self._write({"kind": "start", "step": step, "stream": stream, LEFT_OUT: list(skipped), **started})

    def position(self, step: int, stream: Mapping[str, Any]) -> None:
        """See History."""
        self._write({"kind": "position", "step": step, "stream": stream})

    def _write(self, line: Mapping[str, Any]) -> None:
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:
            log.warning("%s has a gap at step %d, training goes on: %s", self._path, line["step"], error)


@dataclass(kw_only=True, slots=True, frozen=True)
class Start:
    """With what updates were made."""

    step: int
    """Updates done before."""
    config: str
    """The resolved configuration, in YAML."""
    skipped_ranges: list[SkippedRange]
    fingerprints: Mapping[str, Any]
    versions: Mapping[str, str]
    precision: str
    world_size: int


@dataclass(kw_only=True, slots=True, frozen=True)
class Position:
    """Where the data stood, and with what the updates from there on were made."""

    step: int
    stream: Mapping[str, Any]
    start: Start


def read_position(run: Path, before: int) -> Position | None:
    """The last position before an update, of the updates that the run has as it is now.

    Args:
        run: its folder.
        before: number of the update, from 1.

    Returns:
        None where the file is not there, as in runs of earlier versions, or begins later.

    Raises:
        OSError: it is there and cannot be read.
    """
    start: Start | None = None
    found: Position | None = None
    for line in read_lines(run / HISTORY_FILE):
        step = whole(line.get("step"))
        if step is None or step >= before or not isinstance(line.get("stream"), dict):
            continue
        start = _start(line, step) if line.get("kind") == "start" else start
        if start is not None:
            found = Position(step=step, stream=line["stream"], start=start)
    return found


def _start(line: Line, step: int) -> Start:
    return Start(
        step=step,
        config=str(line["config"]),
        skipped_ranges=read_ranges(line[LEFT_OUT]),
        fingerprints=line["fingerprints"],
        versions=line["versions"],
        precision=str(line["precision"]),
        world_size=int(line["world_size"]),
    )
