"""Process information from the kernel's `/proc`, and prctl for this process. Linux only; without torch."""

import contextlib
import ctypes
import signal
from pathlib import Path

PR_SET_PDEATHSIG = 1
"""Option of `prctl`: the signal that this process gets when its parent ends."""


def prctl(option: int, value: int) -> None:
    """prctl(2) for this process; does nothing where another C library does not have it."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value)


def end_with_parent() -> None:
    """In a child, before its program begins: the kernel ends it with its parent, even when that is killed."""
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def state_of(pid: int) -> str:
    """R: running, S: sleeping, D: waiting for a device, T: stopped; empty if not known."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""
