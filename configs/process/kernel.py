"""Process information from the kernel's `/proc`, and prctl for this process. Linux only; without torch."""

import contextlib
import ctypes
import signal
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15
"""Options of `prctl`: the signal that this process gets when its parent ends, and its name."""


def prctl(option: int, value: int | bytes) -> None:
    """prctl(2) for this process; does nothing where another C library does not have it."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value)


def end_with_parent() -> None:
    """In a child, before its program begins: the kernel ends it with its parent, even when that is killed."""
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _status_fields(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the name (which may contain anything): state, parent, ..."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def state_of(pid: int) -> str:
    """R: running, S: sleeping, D: waiting for a device, T: stopped; empty if not known."""
    return next(iter(_status_fields(pid)), "")


def parent_of(pid: int) -> int | None:
    """The parent of a process, or the process that has adopted it; None if it is gone."""
    fields = _status_fields(pid)
    return int(fields[1]) if len(fields) > 1 else None


def wait_channel_of(pid: int) -> str:
    """The kernel function in which the main thread sleeps; "futex" if the kernel does not tell."""
    try:
        channel = Path(f"/proc/{pid}/wchan").read_text()
    except OSError:
        return "futex"
    return channel if channel not in ("", "0") else "futex"
