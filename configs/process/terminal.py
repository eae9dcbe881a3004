"""What a terminal is given beside plain lines: colours and bars. Imports nothing heavy."""

import contextlib
import os
import shutil
import sys
from collections.abc import Iterable
from typing import IO, Any

CLEAR = "\r\x1b[K"
"""Empties the line that the cursor is in: a bar may stand there, of this process or of another."""
_COLUMNS = 100
"""The width of a terminal that does not say."""


def is_live(stream: IO[Any] | None) -> bool:
    """Whether colours and bars may be written to a stream.

    A terminal takes them, unless NO_COLOR (https://no-color.org) or TERM=dumb in the environment says otherwise.
    """
    if stream is None or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    try:
        return stream.isatty()
    except ValueError:  # it is closed
        return False


class Filtered:
    """A stream to a terminal on which text cannot do anything but be read: what it could do is shown escaped.

    Text comes from corpora, models and runs of strangers; an escape sequence in it could rename a window, hide lines
    or type. Colours and bars of zeromt itself are written to `unfiltered`.
    """

    def __init__(self, stream: IO[str]) -> None:
        self.unfiltered = stream

    def write(self, text: str) -> int:
        """Write text."""
        self.unfiltered.write(escaped(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write lines."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.unfiltered, name)

    def __eq__(self, other: object) -> bool:
        return bool(unfiltered(other) == self.unfiltered)  # so tqdm knows that lines are written where its bar is

    def __hash__(self) -> int:
        return hash(self.unfiltered)


def filter_terminals() -> None:
    """From now on, text on standard output and error cannot control a terminal; files and pipes get it as it is."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        with contextlib.suppress(AttributeError, ValueError):  # none, or a closed one
            if stream.isatty():
                setattr(sys, name, Filtered(unfiltered(stream)))


def unfiltered(stream: Any) -> Any:
    """The stream itself, for what zeromt has made and escaped."""
    return stream.unfiltered if isinstance(stream, Filtered) else stream


def escaped(text: str) -> str:
    """Text as a terminal may be given it."""
    if text.replace("\n", "").replace("\t", "").isprintable():
        return text
    try:
        from configs.process.text import on_terminal  # imported late: it is seldom needed, and brings in more
    except ImportError:
        return "".join(c if c in "\n\t" or c.isprintable() else ascii(c)[1:-1] for c in text)
    return on_terminal(text)


def red(text: str) -> str:
    """The text in red, for a stream that is live."""
    return f"\x1b[1;31m{text}\x1b[0m"


def columns(stream: IO[Any]) -> int:
    """How wide a terminal is now; of one that does not say, as COLUMNS in the environment has it."""
    try:
        width = os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        width = 0
    return width or shutil.get_terminal_size((_COLUMNS, 24)).columns
