"""Standard streams: closed, full, or without a reader they end no run; on a terminal text controls nothing.

Imports nothing heavy.
"""

import contextlib
import os
import sys
from collections.abc import Iterable
from typing import IO, Any

URLS_AS_WRITTEN: dict[str, str] = {}
"""URLs of the configuration that contain the value of an environment variable, which may be a secret, each with the
text that the user wrote."""
CLEAR = "\r\x1b[K"
"""Empties the line that the cursor is in: a bar may stand there, of this process or of another."""


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
    """Text as a terminal may be given it: its control characters and direction marks do nothing."""
    if text.replace("\n", "").replace("\t", "").isprintable():
        return text
    from configs.process.text import on_terminal  # seldom needed, and an error about a package must not need one

    return "".join(c if c in "\n\t" else on_terminal(c) for c in text)


def is_live(stream: IO[Any] | None) -> bool:
    """Whether colours and bars may be written to a stream.

    A terminal takes them, unless NO_COLOR (https://no-color.org) or TERM=dumb in the environment says otherwise.
    """
    if stream is None or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    with contextlib.suppress(ValueError):  # it is closed
        return stream.isatty()
    return False


def open_standard_streams() -> None:
    """Open closed standard streams (`>&-`) on /dev/null, and escape what would control a terminal.

    Otherwise the next opened file would become standard output, or printing would fail. Of characters that standard
    output's encoding lacks, escapes are printed, as on standard error.
    """
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest free number is this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(descriptor, "w" if descriptor else "r", encoding="utf-8", closefd=False))  # noqa: SIM115
    with contextlib.suppress(AttributeError, OSError, ValueError):  # somebody else's stream; a closed one
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    filter_terminals()


def leave_standard_streams() -> None:
    """Flush standard output and error, or drop their buffers, so that Python's own flush at exit does not fail."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def hidden(text: str) -> str:
    """The text with URLs that have a value of an environment variable as the user wrote them."""
    for value, written in URLS_AS_WRITTEN.items():
        text = text.replace(value, written)
    return text


def tell(line: str) -> None:
    """Print a line to standard error, without passwords in URLs, ignoring write errors.

    On a terminal a bar gives way, and errors are red.
    """
    line, stream = hidden(line), sys.stderr
    if is_live(stream):
        is_bad = line.startswith("zeromt: error: ") or " failed first: " in line
        shown, stream = escaped(line), unfiltered(stream)
        line = f"{CLEAR}\x1b[1;31m{shown}\x1b[0m" if is_bad else CLEAR + shown
    with contextlib.suppress(OSError, ValueError):
        print(line, file=stream, flush=True)


def note(line: str) -> None:
    """Print a note of `zeromt` to standard error, prefixed with its name."""
    tell(f"zeromt: {line}")
