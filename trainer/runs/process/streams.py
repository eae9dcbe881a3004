"""Standard streams that are closed, full, or whose reader has gone: no reason to lose a run. Imports nothing heavy."""

import contextlib
import os
import sys
import types
from pathlib import Path


def open_standard_streams() -> None:
    """Give a process that was started with some of them closed (`>&-`) others, which lead nowhere.

    Else the next file that is opened takes the place of standard output, and whoever prints fails.
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


def leave_standard_streams() -> None:
    """Write out what is held of standard output and error, or drop it: Python's own flush at exit must not complain."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def live_terminal() -> types.ModuleType | None:
    """What knows terminals, where standard error is one that takes colours and bars; else None.

    It is imported where it is needed alone: who tells that a package is not found must not need one.
    """
    try:
        if sys.stderr is None or not sys.stderr.isatty():
            return None
        from data_pipeline import terminal
    except (ImportError, ValueError):  # of another's `data_pipeline`; a closed stream
        return None
    return terminal if terminal.is_live(sys.stderr) else None


def tell(line: str) -> None:
    """A line on standard error for whoever watches; nobody need. On a terminal a bar gives way, and errors are red."""
    if (terminal := live_terminal()) is not None:
        is_bad = line.startswith("zeromt: error: ") or " failed first: " in line
        line = terminal.CLEAR + (terminal.painted(line, "red") if is_bad else line)
    with contextlib.suppress(OSError, ValueError):
        print(line, file=sys.stderr, flush=True)


def note(line: str) -> None:
    """What `zeromt` has to say beside what it was asked for, on standard error."""
    tell(f"zeromt: {line}")
