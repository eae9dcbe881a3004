"""Log lines: plain in files and pipes, coloured and wrapped to the width on a terminal."""

import logging
import re
import sys
import warnings
from collections.abc import Callable
from typing import IO, Protocol

from typing_extensions import override

from configs.process.streams import hidden
from configs.process.terminal import Colour, columns, escaped, is_live, packed, painted, unfiltered

ROW = "  {name:<13} {text}"
_ROW_INDENT, _STEP_INDENT = 16, 4
_OF_STYLE: dict[str, Colour] = {"evaluation": "cyan", "best": "green", "over": "bold"}

STEP, EVALUATION, BEST, OVER = {"style": "step"}, {"style": "evaluation"}, {"style": "best"}, {"style": "over"}
"""The `extra` of a training line, of an evaluation, of the best evaluation so far, and of a run's end."""
_TABLE = {"style": "row"}


class LiveBar(Protocol):
    """Something displayed on the terminal while lines are printed, such as a bar."""

    def print_above(self, write: Callable[[], None]) -> None:
        """Make room while `write()` writes a line."""
        ...


def log_row(log: logging.Logger, name: str, text: str) -> None:
    """Log a row of a table: a name and its value."""
    log.info("%s", ROW.format(name=name, text=text), extra=_TABLE)


class LogHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes log lines to a stream; if that fails (`| head`, a full disk), they are dropped and the run goes on."""

    def __init__(self, stream: IO[str]) -> None:
        self.is_live = is_live(stream)
        super().__init__(unfiltered(stream) if self.is_live else stream)
        self.live_bar: LiveBar | None = None
        """A bar on the same terminal."""
        self.setFormatter(LiveFormatter(stream) if self.is_live else PlainFormatter("%(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line."""
        live_bar = self.live_bar  # another thread may take it away
        if live_bar is None:
            super().emit(record)
        else:
            live_bar.print_above(lambda: super(LogHandler, self).emit(record))

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 (logging's name)
        """Ignore errors of a closed stream."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)


class PlainFormatter(logging.Formatter):
    """The message and its traceback, without values of environment variables in URLs."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        return hidden(super().format(record))


class LiveFormatter(PlainFormatter):
    """Format for a terminal: the text of the plain line, escaped, with colours and line breaks."""

    def __init__(self, stream: IO[str]) -> None:
        super().__init__("%(message)s")
        self._stream = stream

    @override
    def format(self, record: logging.LogRecord) -> str:
        text = escaped(super().format(record))
        if record.levelno >= logging.WARNING:
            return painted(text, "red" if record.levelno >= logging.ERROR else "yellow")
        style = getattr(record, "style", None)
        if style == "row":
            return self._row(text)
        if style is None:
            return text
        lines = packed(re.split(" {2,}", text), columns(self._stream), between="  ", indent=_STEP_INDENT)
        if style in _OF_STYLE:
            return "\n".join(painted(line, _OF_STYLE[style]) for line in lines)
        head, gap, rest = lines[0].partition("  ")
        return "\n".join([painted(head, "bold") + gap + rest, *lines[1:]])

    def _row(self, text: str) -> str:
        """A row with a coloured name; long values continue on the next line, aligned."""
        head, words = text[:_ROW_INDENT], text[_ROW_INDENT:].split(" ")
        first, *more = packed(words, columns(self._stream) - _ROW_INDENT, between=" ", indent=0)
        return "\n".join([painted(head, "cyan") + first, *(" " * _ROW_INDENT + line for line in more)])


def configure_logging(rank: int) -> None:
    """Log this project's lines from rank 0, warnings from other ranks, and only errors of libraries."""
    logging.basicConfig(level=logging.WARNING, handlers=[LogHandler(sys.stdout)])
    logging.getLogger("trainer").setLevel(logging.INFO if rank == 0 else logging.WARNING)
    warnings.filterwarnings("ignore", category=FutureWarning, module="torch")
    warnings.filterwarnings("ignore", category=UserWarning, module="torch")
