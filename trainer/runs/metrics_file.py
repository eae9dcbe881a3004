"""metrics.jsonl in a run's folder, read from its beginning. Imports no torch.

A job may be writing it, so an incomplete last line is ignored, as is any line that holds no figures.
`trainer.records.metrics` writes it, by `LineFile`.
"""

import logging
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from configs.process.files import explain
from configs.process.files.inside import opened, parse_json, replacing

log = logging.getLogger(__name__)

Line = dict[str, Any]
"""Figures of a step, with `kind`: train, evaluation, score (one that came late) or event."""


def read_lines(path: Path, *, having: str = "") -> Iterator[Line]:
    """The lines of the whole file in order; empty if it does not exist.

    Args:
        path: of metrics.jsonl.
        having: text that every wanted line contains; other lines are not parsed, as parsing takes most of the time.

    Raises:
        OSError: it is there and cannot be read.
    """
    wanted = having.encode()
    try:
        with opened(path) as file:
            yield from (tree for line in file if wanted in line and (tree := parse(line)))
    except FileNotFoundError:
        return


def slowest_save(path: Path) -> float:
    """Seconds of the slowest save so far, from its beginning to its commit; 0 if there is none. See `read_lines`."""
    saves = (line for line in read_lines(path, having='"checkpoint"') if line.get("event") == "checkpoint")
    return max(filter(math.isfinite, (number(line, "seconds") for line in saves)), default=0.0)


def cut_back(path: Path, step: int) -> None:
    """Remove the lines of later steps, and an incomplete last line; also for other files of such lines.

    Args:
        path: the file.
        step: updates done.

    Raises:
        OSError: it is there and cannot be read, or not be written.
    """
    if not path.exists():
        return
    with opened(path) as file, replacing(path) as kept:
        kept.writelines(line.rstrip(b"\n") + b"\n" for line in file if number(parse(line), "step") <= step)


class LineFile:
    """Appends lines to a file. What a full disk does not take is written with the next line, so none is torn."""

    def __init__(self, path: Path) -> None:
        """Open it.

        Raises:
            OSError: it cannot be opened.
        """
        self._path, self._file, self._left = path, opened(path, "ab", buffering=0), b""

    def write(self, line: str) -> None:
        """Append a line, or warn that it cannot be written yet."""
        self._left += line.encode() + b"\n"
        self._write("it is written once that is possible; training continues")

    def close(self) -> None:
        """Close the file, after a last attempt to write what is left; a warning says what is lost."""
        self._write("its last lines are lost")
        self._file.close()

    def _write(self, consequence: str) -> None:
        try:
            while self._left:
                self._left = self._left[os.write(self._file.fileno(), self._left) :]
        except OSError as error:
            log.warning("%s: %s; %s", self._path, explain(error), consequence)


def parse(line: bytes) -> Line:
    """A line's figures; empty if it has none."""
    try:
        tree = parse_json(line)
    except ValueError:
        return {}
    return tree if isinstance(tree, dict) else {}


def whole(value: object) -> int | None:
    """The value if it is a whole number from 0 on, else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def number(line: Mapping[str, Any], key: str) -> float:
    """A figure; NaN if it is not a number."""
    value = line.get(key)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
