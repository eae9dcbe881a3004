"""What the kernel says of a process, by `/proc`, and is told of this one. Linux only; without torch."""

import contextlib
import ctypes
from pathlib import Path


def prctl(option: int, value: int | bytes) -> None:
    """prctl(2) for this process; nothing where that cannot be had."""
    with contextlib.suppress(OSError, AttributeError):  # another C library: the loop notices, a little later
        ctypes.CDLL(None).prctl(option, value)


def _status_fields(pid: int) -> list[str]:
    """What /proc/PID/stat says behind the name, which may hold anything: state, parent, ..."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def state_of(pid: int) -> str:
    """R runs, S sleeps, D waits for a device, T is stopped; empty where it cannot be told."""
    return next(iter(_status_fields(pid)), "")


def parent_of(pid: int) -> int | None:
    """The process that it was started by, or that has taken it over; None where it is gone."""
    fields = _status_fields(pid)
    return int(fields[1]) if len(fields) > 1 else None


def wait_channel_of(pid: int) -> str:
    """The kernel function that the main thread sleeps in; "futex" where the kernel does not tell."""
    try:
        channel = Path(f"/proc/{pid}/wchan").read_text()
    except OSError:
        return "futex"
    return channel if channel not in ("", "0") else "futex"
