"""Standard streams that are closed, full, or without a reader must not end a run; what text could do to a terminal.

Imports nothing heavy.
"""

import codecs
import contextlib
import os
import sys
import types
from pathlib import Path

URLS_AS_WRITTEN: dict[str, str] = {}
"""URLs of the configuration that contain the value of an environment variable, which may be a secret, each with the
text that the user wrote."""


def open_standard_streams() -> None:
    """Open closed standard streams (`>&-`) on /dev/null, and escape what would control a terminal.

    Otherwise the next opened file would become standard output, or printing would fail. Of characters that standard
    output's encoding lacks, escapes are printed, as on standard error.
    """
    for descriptor, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(descriptor)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != descriptor:
                os.dup2(opened, descriptor)
                os.close(opened)
            os.set_inheritable(descriptor, True)
        if getattr(sys, name) is None:
            try:
                stream = open(descriptor, mode, encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
            except OSError:  # a folder
                stream = Path(os.devnull).open(mode, encoding="utf-8")  # noqa: SIM115
            setattr(sys, name, stream)
    with contextlib.suppress(AttributeError, OSError, ValueError):  # somebody else's stream; a closed one
        if codecs.lookup(sys.stdout.encoding or "utf-8").name != "utf-8":
            sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    with contextlib.suppress(ValueError):  # a closed stream
        if sys.stdout.isatty() or sys.stderr.isatty():
            from configs.process.terminal import filter_terminals

            filter_terminals()


def leave_standard_streams() -> None:
    """Flush standard output and error, or drop their buffers, so that Python's own flush at exit does not fail."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def live_terminal() -> types.ModuleType | None:
    """The terminal module if standard error is a terminal with colours and bars; else None.

    It is imported only if needed: an error about a missing package must not need a package.
    """
    try:
        if sys.stderr is None or not sys.stderr.isatty():
            return None
        from configs.process import terminal
    except ValueError:  # a closed stream
        return None
    return terminal if terminal.is_live(sys.stderr) else None


def hidden(text: str) -> str:
    """The text with URLs that have a value of an environment variable as the user wrote them."""
    for value, written in URLS_AS_WRITTEN.items():
        text = text.replace(value, written)
    return text


def tell(line: str) -> None:
    """Print a line to standard error, without passwords in URLs, ignoring write errors.

    On a terminal a bar gives way, and errors are red.
    """
    line = hidden(line)
    if (terminal := live_terminal()) is not None:
        is_bad = line.startswith("zeromt: error: ") or " failed first: " in line
        line = terminal.escaped(line)
        line = terminal.CLEAR + (terminal.red(line) if is_bad else line)
    with contextlib.suppress(OSError, ValueError):
        print(line, file=sys.stderr if terminal is None else terminal.unfiltered(sys.stderr), flush=True)


def note(line: str) -> None:
    """Print a note of `zeromt` to standard error, prefixed with its name."""
    tell(f"zeromt: {line}")
