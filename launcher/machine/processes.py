"""The descendants of this process, from the kernel's lists."""

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path


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
