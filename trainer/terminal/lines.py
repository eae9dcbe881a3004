"""Log lines: plain where they are piped or kept, coloured and cut to the width where a terminal is."""

import logging
import re
import sys
import warnings
from collections.abc import Callable
from typing import IO, Protocol

from data_pipeline.terminal import Colour, columns, is_live, packed, painted

ROW = "  {name:<13} {text}"
_ROW_INDENT, _STEP_INDENT = 16, 4
_OF_STYLE: dict[str, Colour] = {"evaluation": "cyan", "best": "green", "over": "bold"}

STEP, EVALUATION, BEST, OVER = {"style": "step"}, {"style": "evaluation"}, {"style": "best"}, {"style": "over"}
"""The `extra` of a line of training, of an evaluation, of one that is the best so far, and of a run's end."""
_TABLE = {"style": "row"}


class Beside(Protocol):
    """What stands on the terminal while lines come."""

    def write_line(self, write: Callable[[], None]) -> None:
        """Give way while `write()` writes a line."""
        ...


def log_row(log: logging.Logger, name: str, text: str) -> None:
    """A row of a table: a name and what it is."""
    log.info("%s", ROW.format(name=name, text=text), extra=_TABLE)


class LogHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """Log lines on a stream; where it takes none (`| head`, a full disk), they are dropped and the run goes on."""

    def __init__(self, stream: IO[str]) -> None:
        super().__init__(stream)
        self.is_live = is_live(stream)
        self.beside: Beside | None = None
        """A bar on the same terminal."""
        self.setFormatter(LiveFormatter(stream) if self.is_live else logging.Formatter("%(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line."""
        beside = self.beside
        if beside is None:
            super().emit(record)
        else:
            beside.write_line(lambda: super(LogHandler, self).emit(record))

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 (logging's name)
        """Say nothing of a stream that is gone."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)


class LiveFormatter(logging.Formatter):
    """For a terminal. The words are those of the plain line; colours and line ends are added."""

    def __init__(self, stream: IO[str]) -> None:
        super().__init__("%(message)s")
        self._stream = stream

    def format(self, record: logging.LogRecord) -> str:
        """See logging."""
        text = super().format(record)
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
        """A row with its name in a colour; what does not fit stands below, under what does."""
        head, words = text[:_ROW_INDENT], text[_ROW_INDENT:].split(" ")
        first, *more = packed(words, columns(self._stream) - _ROW_INDENT, between=" ", indent=0)
        return "\n".join([painted(head, "cyan") + first, *(" " * _ROW_INDENT + line for line in more)])


def configure_logging(rank: int) -> None:
    """This project's lines from rank 0, warnings from the others; of libraries, errors only."""
    logging.basicConfig(level=logging.WARNING, handlers=[LogHandler(sys.stdout)])
    logging.getLogger("trainer").setLevel(logging.INFO if rank == 0 else logging.WARNING)
    warnings.filterwarnings("ignore", category=FutureWarning, module="torch")
    warnings.filterwarnings("ignore", category=UserWarning, module="torch")
