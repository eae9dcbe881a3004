"""How much free memory this machine has for its processes."""

import contextlib
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import psutil

COPIES_FRACTION = 0.5
"""Largest fraction of a machine's free memory that copies of shards take."""


def available(root: Path = Path("/")) -> int:
    """Free bytes: the system's estimate, or what a control group (version 2) of this process leaves, if that is less.

    Args:
        root: where /proc and /sys are.
    """
    left: list[int] = [psutil.virtual_memory().available]
    with contextlib.suppress(OSError):
        own = (
            root
            / "sys/fs/cgroup"
            / (root / "proc/self/cgroup").read_text(encoding="utf-8").rpartition("0::/")[2].strip()
        )
        for group in (own, *own.parents):  # a limit holds for all groups below it
            with contextlib.suppress(OSError, ValueError):  # there is none; in a container some are not visible
                limit, used = (int((group / f"memory.{name}").read_text()) for name in ("max", "current"))
                # the kernel reclaims inactive cached files when memory is needed
                cached = re.search(r"^inactive_file (\d+)", (group / "memory.stat").read_text(), re.MULTILINE)
                left.append(max(limit - used + int(cached[1] if cached else 0), 0))
    return min(left)


def shortage(reports: Sequence[tuple[str, int, int]]) -> str | None:
    """A message that names a machine without enough memory for copies of its ranks' shards; None if all have enough.

    Args:
        reports: for every rank: the machine, bytes needed, bytes free on the machine.
    """
    needed = Counter[str]()
    for host, amount, _ in reports:
        needed[host] += amount
    for host, _, left in reports:
        if needed[host] > COPIES_FRACTION * left:
            return f"{host} has {left:,} bytes of memory left, copies of its ranks' shards take {needed[host]:,}"
    return None
