"""The descendants of this process, from the kernel's lists."""

import contextlib
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path

from configs.process.kernel import PR_SET_CHILD_SUBREAPER, prctl


def descendants(pid: int) -> list[int]:
    """All descendants of a process, youngest generation first."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(entry.name))
    pids: list[int] = []
    level = children.get(pid, [])
    while level:
        pids = level + pids
        level = [grandchild for child in level for grandchild in children.get(child, [])]
    return pids


def processes_with(variables: Mapping[str, str]) -> list[int]:
    """Processes of this user that were started with these environment variables, whatever their parent is now.

    This process and zombies are excluded.
    """
    marks = {os.fsencode(f"{name}={value}") for name, value in variables.items()}
    pids = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if int(entry.name) != os.getpid() and marks <= set((entry / "environ").read_bytes().split(b"\0")):
                pids.append(int(entry.name))
    return pids


def adopt_orphans() -> None:
    """Adopt descendants whose own parent ends, so that none gets lost."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)


def kill_descendants() -> None:
    """Kill all descendants of this process."""
    while below := [pid for pid in descendants(os.getpid()) if _is_alive(pid)]:
        for pid in below:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (OSError, IndexError):
        return False
