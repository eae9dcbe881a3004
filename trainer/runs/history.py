"""history.jsonl in a run's folder: the settings of every start; the data position at starts, saves and new phases.

    {"kind": "start", "step": 40, "stream": {...}, "left_out": [[0, 14, 17]], "config": "..."}
    {"kind": "position", "step": 60, "stream": {...}}

An update's data follow from the last line before it and the settings. A rewind is a start too. A resume removes the
lines of later steps.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainer.runs.layout import HISTORY_FILE
from trainer.runs.metrics_file import Line, LineFile, cut_back, read_lines, whole

SkippedRange = tuple[int, int, int]
"""Updates of one epoch that a rewind skips: epoch, first, last."""
LEFT_OUT = "left_out"
"""Their key in JSON."""


def read_ranges(tree: Iterable[Iterable[int]]) -> list[SkippedRange]:
    """Parse ranges from JSON."""
    return [(int(epoch), int(first), int(last)) for epoch, first, last in tree]


class History:
    """Writes history.jsonl. A full disk does not end the run: checkpoints have what missing lines would say."""

    def __init__(self, run: Path, *, resume_step: int) -> None:
        """Remove the lines of later steps.

        Raises:
            OSError: it cannot be read or written.
        """
        cut_back(run / HISTORY_FILE, resume_step)
        self._file = LineFile(run / HISTORY_FILE)

    def start(self, step: int, stream: Mapping[str, Any], skipped: Sequence[SkippedRange], config: str) -> None:
        """Record a start or a rewind.

        Args:
            step: updates done.
            stream: `StreamState.to_json`, of all lanes.
            skipped: ranges of updates to skip.
            config: the resolved configuration, in YAML.
        """
        self._write({"kind": "start", "step": step, "stream": stream, LEFT_OUT: list(skipped), "config": config})

    def position(self, step: int, stream: Mapping[str, Any]) -> None:
        """Record the stream's position at a save, or at the beginning of a phase."""
        self._write({"kind": "position", "step": step, "stream": stream})

    def _write(self, line: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(line))


@dataclass(kw_only=True, slots=True, frozen=True)
class Position:
    """A position in the data, and the settings of the updates from there on."""

    step: int
    """Updates done before."""
    stream: Mapping[str, Any]
    config: str
    """The resolved configuration, in YAML."""
    skipped_ranges: list[SkippedRange]


def read_position(run: Path, before: int) -> Position | None:
    """The last position before an update, in the run's current line of updates.

    Args:
        run: its folder.
        before: number of the update, from 1.

    Returns:
        None if the file is missing or begins later.

    Raises:
        OSError: it exists and cannot be read.
    """
    start: Line | None = None
    position: Position | None = None
    for line in read_lines(run / HISTORY_FILE):
        step = whole(line.get("step"))
        if step is None or step >= before or not isinstance(line.get("stream"), dict):
            continue
        start = line if line.get("kind") == "start" else start
        if start is not None:
            position = Position(
                step=step,
                stream=line["stream"],
                config=str(start["config"]),
                skipped_ranges=read_ranges(start[LEFT_OUT]),
            )
    return position
