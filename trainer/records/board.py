"""TensorBoard's event file: one per run, truncated to the checkpoint's step when the run resumes."""

import html
import os
import socket
import struct
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from google.protobuf.message import DecodeError

from configs.process.document import Cell
from configs.process.files.inside import opened, read_bytes, replacing
from configs.process.text import visible
from trainer.runs.layout import BOARD

_STATUS = {"finished": "STATUS_SUCCESS", "stopped": "STATUS_UNKNOWN"}
"""TensorBoard's status of a run by the outcome; STATUS_FAILURE for others."""


class Board:
    """Writes scalars, tables and images by step.

    TensorBoard reads a run's event files in the order of their names, which contain the time of the machine's clock. If
    a step is not larger than the one before, it assumes a restart. So if the clock had been set back, the events of a
    resumed run would be read before those that it resumed from. Therefore there is only one file: events up to the
    checkpoint's step are copied from earlier files to a new one, each figure of a step once, and the earlier files are
    removed or emptied.
    """

    def __init__(self, run: Path, *, resume_step: int, clock: Callable[[], float] = time.time) -> None:
        """Start a file in the run's folder, with the events that are kept of the earlier files.

        It is in the run's folder, not in one of its own, because TensorBoard names a run by the folder of its file.

        Raises:
            OSError: the file cannot be written.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from tensorboard.compat.proto.event_pb2 import Event, SessionLog
            from tensorboard.summary.writer.record_writer import RecordWriter
            from torch.utils.tensorboard import summary
        self._event: Any = Event
        self._made: Any = summary
        # Wall time is counted from the start by the monotonic clock, so that setting the clock does not show.
        self._begin, self._since = clock(), time.monotonic()
        run.mkdir(parents=True, exist_ok=True)
        old = sorted(run.glob(f"{BOARD}*"))
        timestamp = max([int(self._begin), *(timestamp_of(path) + 1 for path in old)])
        path = run / f"{BOARD}{timestamp:010d}.{socket.gethostname()}.{os.getpid()}"
        with replacing(path) as file:
            self._records = RecordWriter(file)
            self._write(file_version="brain.Event:2")
            # Tells a running TensorBoard to forget what it has read of this run: all of it is written again.
            self._write(session_log=SessionLog(status=SessionLog.START))
            for record in kept_events(old, resume_step, self._begin, Event):
                self._records.write(record)
        self._file: IO[bytes] = opened(path, "ab")
        self._records = RecordWriter(self._file)
        # The newest file is emptied, not removed: a TensorBoard that follows it would read no further file.
        for path in old:
            if path is old[-1]:
                opened(path, "wb").close()
            else:
                path.unlink(missing_ok=True)

    def once_per_run(self, *summaries: Any) -> None:
        """Write what describes the whole run, such as a layout; it replaces that of earlier starts (`kept_events`)."""
        self._values(0, [value for summary in summaries for value in summary.value])

    def layout(self, charts: Mapping[str, Mapping[str, Sequence[str]]]) -> None:
        """Define the custom scalars: for each category and title, the tags of a chart or regular expressions."""
        multiline = {
            category: {title: ["Multiline", list(tags)] for title, tags in of_category.items()}
            for category, of_category in charts.items()
        }
        self.once_per_run(self._made.custom_scalars(multiline))

    def hyperparameters(
        self, values: Mapping[str, bool | float | str], metrics: Mapping[str, str]
    ) -> Callable[[str], None]:
        """Write hyperparameters and the metrics beside them; returns a function that notes the outcome.

        TensorBoard sorts columns by name and shows the first few. So a name may begin with a number and a space, which
        set the order and are not displayed. Metrics always stand to the right of them, in the order given.

        Args:
            values: by the names of the hyperparameters.
            metrics: their names by tag.
        """
        from tensorboard.plugins.hparams.api_pb2 import Experiment, HParamInfo, MetricInfo, MetricName, Status
        from tensorboard.plugins.hparams.plugin_data_pb2 import SessionEndInfo

        _, start, _ = self._made.hparams(dict(values), {})
        columns = [
            HParamInfo(name=name, display_name=name.partition(" ")[2] or name, type=_hparam_type(value))
            for name, value in values.items()
        ]
        shown = [MetricInfo(name=MetricName(tag=tag), display_name=name) for tag, name in metrics.items()]
        self._hparams("experiment", experiment=Experiment(hparam_infos=columns, metric_infos=shown))
        self.once_per_run(start)

        def end(outcome: str) -> None:
            status = Status.Value(_STATUS.get(outcome, "STATUS_FAILURE"))
            self._hparams("session_end_info", session_end_info=SessionEndInfo(status=status))

        return end

    def _hparams(self, tag: str, **content: Any) -> None:
        from tensorboard.plugins.hparams.metadata import PLUGIN_DATA_VERSION, PLUGIN_NAME
        from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

        value = self._made.Summary.Value(tag=f"_hparams_/{tag}")
        value.metadata.plugin_data.plugin_name = PLUGIN_NAME
        value.metadata.plugin_data.content = HParamsPluginData(
            version=PLUGIN_DATA_VERSION, **content
        ).SerializeToString()
        self._values(0, [value])

    def scalars(self, step: int, figures: Mapping[str, float], *, x: int | None = None) -> None:
        """Write scalars.

        Args:
            step: updates done.
            figures: values by tag.
            x: position on the horizontal axis if that does not count updates.
        """
        values = [self._made.scalar(tag, value).value[0] for tag, value in figures.items()]
        if x is not None:
            for value in values:
                value.node_name = str(step)  # not displayed: tells a resumed run which values to remove
        self._values(step if x is None else x, values)

    def table(self, step: int, tag: str, head: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
        """Write rows of text, which are displayed literally: no markup in them is interpreted."""
        self._values(step, self._made.text(tag, table(head, rows)).value)

    def table_once_per_run(self, tag: str, head: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
        """Write a table that describes the whole run: see `table` and `once_per_run`."""
        self.once_per_run(self._made.text(tag, table(head, rows)))

    def image(self, step: int, tag: str, pixels_HW: np.ndarray[Any, Any]) -> None:
        """Write a greyscale image with values from 0 to 255."""
        self._values(step, self._made.image(tag, pixels_HW, dataformats="HW").value)

    def close(self) -> None:
        """Close the file. Every step was flushed when it was written."""
        self._file.close()

    def _values(self, step: int, values: Any) -> None:
        if values:
            self._write(step=step, summary=self._made.Summary(value=values))
            self._file.flush()

    def _write(self, **fields: Any) -> None:
        wall_time = self._begin + time.monotonic() - self._since
        self._records.write(self._event(wall_time=wall_time, **fields).SerializeToString())


def table(head: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """An HTML table that TensorBoard displays as it is.

    TensorBoard renders text as Markdown, but not within a block of HTML, so only HTML's special characters must be
    escaped. Control characters and line separators, which would be invisible, become Python's escape sequences.
    """

    def text(cell: Cell) -> str:
        if isinstance(cell, str):
            return html.escape(visible(cell))
        pieces = ((html.escape(visible(piece)), is_marked) for piece, is_marked in cell)
        return "".join(f"<strong>{piece}</strong>" if is_marked else piece for piece, is_marked in pieces)

    def line(cells: Sequence[Cell], kind: str) -> str:
        return "<tr>" + "".join(f"<{kind}>{text(cell)}</{kind}>" for cell in cells) + "</tr>"

    body = "".join(line(cells, "td") for cells in rows)
    return f"<table><thead>{line(head, 'th')}</thead><tbody>{body}</tbody></table>"


def _hparam_type(value: bool | float | str) -> Any:
    from tensorboard.plugins.hparams.api_pb2 import DataType

    names = {bool: "DATA_TYPE_BOOL", str: "DATA_TYPE_STRING"}
    return DataType.Value(names.get(type(value), "DATA_TYPE_FLOAT64"))


ONCE_PER_RUN = ("custom_scalars__config__", "_hparams_/", "run/")
"""Prefixes of the tags that describe the whole run."""
ONCE_PER_START = ("events/start", "events/rewind/", "events/changed", "events/score_series", "events/left_out")
"""Prefixes of the tags that every start writes at the step that it resumes from."""


def kept_events(files: Sequence[Path], step: int, now: float, event: Any) -> list[bytes]:
    """The events up to `step`, in order and each tag of a step once; their wall times never decrease or exceed `now`.

    Events with tags of `ONCE_PER_RUN`, and at `step` those of `ONCE_PER_START`, are dropped, because every start writes
    them again.
    """
    newest: dict[tuple[str, int], tuple[int, float, bytes]] = {}
    for path in files:
        for message in _events(path, event):
            for value in message.summary.value:
                update = int(value.node_name) if value.node_name.isdecimal() else message.step
                is_rewritten = value.tag.startswith(ONCE_PER_RUN)
                is_rewritten |= update == step and value.tag.startswith(ONCE_PER_START)
                if update > step or is_rewritten:
                    continue
                alone = event(step=message.step)
                alone.summary.value.append(value)
                newest[value.tag, message.step] = update, message.wall_time, alone.SerializeToString()
    records: list[bytes] = []
    latest = now
    for _, wall_time, data in sorted(newest.values(), key=lambda one: one[0], reverse=True):
        latest = min(latest, wall_time)
        # two serialized messages, concatenated, parse as one with the fields of both
        records.append(event(wall_time=latest).SerializeToString() + data)
    return records[::-1]


def _events(path: Path, event: Any) -> Iterator[Any]:
    """The events of a file before the first corrupt one. A record is: length, its checksum, data, its checksum."""
    data = read_bytes(path, most=None)
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


def timestamp_of(path: Path) -> int:
    """The seconds since the epoch in an event file's name; 0 if there are none."""
    digits = path.name.removeprefix(BOARD).partition(".")[0]
    return int(digits) if digits.isascii() and digits.isdigit() else 0
