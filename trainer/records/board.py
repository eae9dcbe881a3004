"""The file that TensorBoard reads: one of a run, cut back to the checkpoint's step when the run resumes."""

import html
import os
import socket
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from configs.text import visible
from trainer.records.board_files import kept, stamp_of
from trainer.runs.layout import BOARD, EARLIER_BOARD

TEMPORARY = "board.tmp"
Piece = tuple[str, bool]
"""Text, and whether it is marked."""
Cell = str | Sequence[Piece]


class Board:
    """Writes figures, texts and pictures by step.

    TensorBoard reads a run's files in the order of their names, which hold the time by the machine's clock, and takes a
    step that is not beyond the one before for a restart. Where a clock was set back, what a resumed run did would come
    before what it resumed from. So there is one file: what earlier files hold of steps up to the checkpoint's goes into
    a new one, each figure of a step once, and they are removed or emptied.
    """

    def __init__(self, run: Path, *, resume_step: int, clock: Callable[[], float] = time.time) -> None:
        """Begin a file in the run's folder, with what is kept of those that are there.

        It lies there and not in a folder of its own, because TensorBoard calls a run by the folder of its file.

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
        run.mkdir(parents=True, exist_ok=True)
        earlier = run / EARLIER_BOARD
        old = [*sorted(earlier.glob(f"{BOARD}*")), *sorted(run.glob(f"{BOARD}*"))]
        stamp = max([int(self._begin), *(stamp_of(path) + 1 for path in old)])
        beside = run / TEMPORARY
        self._file = beside.open("wb")
        self._records = RecordWriter(self._file)
        self._write(file_version="brain.Event:2")
        # A TensorBoard that is watching forgets what it has shown: all of it follows.
        self._write(session_log=SessionLog(status=SessionLog.START))
        for record in kept(old, resume_step, self._begin, Event):
            self._records.write(record)
        self._file.flush()
        beside.replace(run / f"{BOARD}{stamp:010d}.{socket.gethostname()}.{os.getpid()}")
        # The newest is emptied and not removed: a TensorBoard that is watching it would stop there.
        for path in old:
            if path is old[-1] and path.parent == run:
                path.write_bytes(b"")
            else:
                path.unlink(missing_ok=True)
        if earlier.is_dir() and not earlier.is_symlink() and not any(earlier.iterdir()):
            earlier.rmdir()

    def statement(self, *summaries: Any) -> None:
        """What stands once for the whole run, such as a layout; of earlier starts it is left out: see `kept`."""
        self._values(0, [value for summary in summaries for value in summary.value])

    def layout(self, charts: Mapping[str, Mapping[str, Sequence[str]]]) -> None:
        """The custom scalars: by category and title the tags, or expressions for them, of a chart."""
        multiline = {
            category: {title: ["Multiline", list(tags)] for title, tags in of_category.items()}
            for category, of_category in charts.items()
        }
        self.statement(self._made.custom_scalars(multiline))

    def settings(self, values: Mapping[str, bool | float | str], metrics: Sequence[str]) -> Callable[[], None]:
        """Hyperparameters and the tags of the metrics beside them; what is returned says that the run has ended.

        TensorBoard sorts columns by name and shows the first few: what stands before a space orders them, unseen.
        """
        from tensorboard.plugins.hparams.api_pb2 import Experiment, HParamInfo, MetricInfo, MetricName

        _, start, end = self._made.hparams(dict(values), {})
        columns = [
            HParamInfo(name=name, display_name=name.partition(" ")[2] or name, type=_hparam_type(value))
            for name, value in values.items()
        ]
        shown = [MetricInfo(name=MetricName(tag=tag), display_name=tag) for tag in metrics]
        self._hparams("experiment", experiment=Experiment(hparam_infos=columns, metric_infos=shown))
        self.statement(start)
        return lambda: self.statement(end)

    def _hparams(self, what: str, **content: Any) -> None:
        from tensorboard.plugins.hparams.metadata import PLUGIN_DATA_VERSION, PLUGIN_NAME
        from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

        value = self._made.Summary.Value(tag=f"_hparams_/{what}")
        value.metadata.plugin_data.plugin_name = PLUGIN_NAME
        value.metadata.plugin_data.content = HParamsPluginData(
            version=PLUGIN_DATA_VERSION, **content
        ).SerializeToString()
        self._values(0, [value])

    def scalars(self, step: int, figures: Mapping[str, float], *, place: int | None = None) -> None:
        """Figures by their tags.

        Args:
            step: updates done.
            figures: by tag.
            place: where they stand on another axis than updates.
        """
        values = [self._made.scalar(tag, value).value[0] for tag, value in figures.items()]
        if place is not None:
            for value in values:
                value.node_name = str(step)  # which is shown nowhere: by it a resumed run finds what to cut
        self._values(step if place is None else place, values)

    def table(self, step: int, tag: str, head: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
        """Rows of text, shown letter by letter whatever they hold."""
        self._values(step, self._made.text(tag, table(head, rows)).value)

    def statement_table(self, tag: str, head: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
        """As `table`, of the whole run."""
        self.statement(self._made.text(tag, table(head, rows)))

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


def table(head: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """A table in HTML, in which TensorBoard's Markdown changes nothing.

    Within a block of HTML Markdown is no more looked for, so HTML's own characters are all that must be escaped.
    Control characters and line separators are shown as Python writes them: nobody would see them. Marked pieces are
    bold.
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
