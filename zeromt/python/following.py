"""Follows metrics.jsonl while another process writes it."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from configs.process.files.inside import reading
from trainer.runs.metrics_file import Line, parse


class Follower:
    """Yields every line written from now on, once.

    A run that resumes or rewinds cuts its file back: it writes the remaining lines to a new file and renames that.
    """

    def __init__(self, path: Path) -> None:
        """Skip the existing lines.

        Args:
            path: of metrics.jsonl, which need not exist yet.
        """
        self._path = path
        self._file = self._open()
        self._seen: list[int] = [] if self._file is None else list(map(hash, _whole_lines(self._file)))

    def lines(self) -> Iterator[Line]:
        """The lines that were written since the last call.

        Raises:
            OSError: the file exists and cannot be read.
        """
        yield from self._new()
        if not self._is_replaced():
            return
        before = iter(self._seen)
        self.close()
        self._file, self._seen = self._open(), []
        if self._file is None:
            return
        for line in _whole_lines(self._file):
            self._seen.append(hash(line))
            if self._seen[-1] not in before:  # takes what stands before it out of `before`: lines keep their order
                yield parse(line)

    def close(self) -> None:
        """Read no more."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _new(self) -> Iterator[Line]:
        if self._file is not None:
            for line in _whole_lines(self._file):
                self._seen.append(hash(line))
                yield parse(line)

    def _is_replaced(self) -> bool:
        """Whether the path now leads to another file."""
        try:
            named = self._path.stat()
        except OSError:
            return False
        if self._file is None:
            return True
        ours = os.fstat(self._file.fileno())
        return (named.st_dev, named.st_ino) != (ours.st_dev, ours.st_ino)

    def _open(self) -> IO[bytes] | None:
        try:
            return reading(self._path)
        except FileNotFoundError:
            return None


def _whole_lines(file: IO[bytes]) -> Iterator[bytes]:
    """The complete lines from the current position; an incomplete last line is left for the next call."""
    while (line := file.readline()).endswith(b"\n"):
        yield line
    file.seek(-len(line), os.SEEK_CUR)
