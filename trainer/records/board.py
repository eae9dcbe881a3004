"""The file that TensorBoard reads: one of a run, cut back to the checkpoint's step when the run resumes."""

import html
import os
import socket
import struct
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from configs.text import visible

NAME = "events.out.tfevents."
"""What the names of such files begin with; the seconds of their beginning follow, and TensorBoard reads by name."""


class Board:
    """Writes figures, texts and pictures by step.

    TensorBoard reads a run's files in the order of their names, which hold the time by the machine's clock, and takes a
    step that is not beyond the one before for a restart. Where a clock was set back, what a resumed run did would come
    before what it resumed from. So there is one file: what earlier files hold of steps up to the checkpoint's goes into
    a new one, each figure of a step once, and they are removed or emptied.
    """

    def __init__(self, folder: Path, *, resume_step: int, clock: Callable[[], float] = time.time) -> None:
        """Begin a file in the folder, with what is kept of those that are there.

        Raises:
            OSError: it cannot be written.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from tensorboard.compat.proto.event_pb2 import Event, SessionLog
            from tensorboard.summary.writer.record_writer import RecordWriter
            from torch.utils.tensorboard import summary
        self._event: Any = Event
        self._made: Any = summary
        # A clock that is set while the run goes on must not be seen in it.
        self._begin, self._since = clock(), time.monotonic()
        folder.mkdir(parents=True, exist_ok=True)
        old = sorted(folder.glob(f"{NAME}*"))
        stamp = max([int(self._begin), *(_stamp(path) + 1 for path in old)])
        beside = folder / "new.tmp"
        self._file = beside.open("wb")
        self._records = RecordWriter(self._file)
        self._write(file_version="brain.Event:2")
        # A TensorBoard that is watching forgets what it has shown: all of it follows.
        self._write(session_log=SessionLog(status=SessionLog.START))
        for record in _kept(old, resume_step, self._begin, Event):
            self._records.write(record)
        self._file.flush()
        beside.replace(folder / f"{NAME}{stamp:010d}.{socket.gethostname()}.{os.getpid()}")
        # The newest is emptied and not removed: a TensorBoard that is watching it would stop there.
        for path in old[:-1]:
            path.unlink(missing_ok=True)
        for path in old[-1:]:
            path.write_bytes(b"")

    def scalars(self, step: int, figures: Mapping[str, float]) -> None:
        """Figures by their tags."""
        values = [self._made.scalar(tag, value).value[0] for tag, value in figures.items()]
        self._values(step, values)

    def table(self, step: int, tag: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Rows of text, shown letter by letter whatever they hold."""
        self._values(step, self._made.text(tag, table(head, rows)).value)

    def picture(self, step: int, tag: str, pixels_HW: np.ndarray[Any, Any]) -> None:
        """A picture in shades of grey, 0 to 255."""
        self._values(step, self._made.image(tag, pixels_HW, dataformats="HW").value)

    def close(self) -> None:
        """Close the file; it is written as far as it goes after every step."""
        self._file.close()

    def _values(self, step: int, values: Any) -> None:
        if values:
            self._write(step=step, summary=self._made.Summary(value=values))
            self._file.flush()

    def _write(self, **fields: Any) -> None:
        wall_time = self._begin + time.monotonic() - self._since
        self._records.write(self._event(wall_time=wall_time, **fields).SerializeToString())


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in HTML, in which TensorBoard's Markdown changes nothing.

    Within a block of HTML Markdown is no more looked for, so HTML's own characters are all that must be escaped.
    Control characters and line separators are shown as Python writes them: nobody would see them.
    """

    def line(cells: Sequence[str], kind: str) -> str:
        return "<tr>" + "".join(f"<{kind}>{html.escape(visible(cell))}</{kind}>" for cell in cells) + "</tr>"

    body = "".join(line(cells, "td") for cells in rows)
    return f"<table><thead>{line(head, 'th')}</thead><tbody>{body}</tbody></table>"


def _kept(files: Sequence[Path], step: int, now: float, event: Any) -> list[bytes]:
    """Events of steps up to `step`, in order, each tag of a step once, at times that do not go back nor beyond now."""
    newest: dict[tuple[str, int], tuple[float, bytes]] = {}
    for path in files:
        for found in _events(path, event):
            for value in found.summary.value if found.step <= step else ():
                alone = event(step=found.step)
                alone.summary.value.append(value)
                newest[value.tag, found.step] = found.wall_time, alone.SerializeToString()
    kept: list[bytes] = []
    latest = now
    for (_, _), (wall_time, data) in sorted(newest.items(), key=lambda item: item[0][1], reverse=True):
        latest = min(latest, wall_time)
        kept.append(event(wall_time=latest).SerializeToString() + data)  # joined messages are one
    return kept[::-1]


def _events(path: Path, event: Any) -> Iterator[Any]:
    """The events of a file up to one that is broken: length, its checksum, data, its checksum."""
    data = path.read_bytes()
    place = 0
    while place + 12 <= len(data):
        [length] = struct.unpack_from("<Q", data, place)
        begin, place = place + 12, place + 12 + length + 4
        if place > len(data):
            return
        try:
            yield event.FromString(data[begin : begin + length])
        except DecodeError:
            return


def _stamp(path: Path) -> int:
    """The seconds in a file's name."""
    digits = path.name.removeprefix(NAME).partition(".")[0]
    return int(digits) if digits.isascii() and digits.isdigit() else 0
