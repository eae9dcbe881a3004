"""How much free memory this machine has for its processes."""

from collections.abc import Sequence
from pathlib import Path

COPIES_FRACTION = 0.5
"""Largest fraction of a machine's free memory that copies of shards take."""


def available(root: Path = Path("/")) -> int | None:
    """Free bytes: the kernel's estimate or the control groups' limit, whichever is less; None if neither is known.

    Args:
        root: where /proc and /sys are.
    """
    return min((n for n in [_meminfo(root / "proc" / "meminfo"), *_groups(root)] if n is not None), default=None)


def shortage(reports: Sequence[tuple[str, int, int | None]]) -> str | None:
    """A message that names a machine without enough memory for copies of its ranks' shards; None if all have enough.

    Args:
        reports: for every rank: the machine, bytes needed, bytes free on the machine (None: unknown, assumed enough).
    """
    needed: dict[str, int] = {}
    left: dict[str, int] = {}
    for host, bytes_needed, bytes_left in reports:
        needed[host] = needed.get(host, 0) + bytes_needed
        if bytes_left is not None:
            left[host] = min(left.get(host, bytes_left), bytes_left)
    for host, amount in needed.items():
        if host in left and amount > COPIES_FRACTION * left[host]:
            return f"{host} has {left[host]:,} bytes of memory left, copies of its ranks' shards take {amount:,}"
    return None


def _meminfo(path: Path) -> int | None:
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)


def _groups(root: Path) -> list[int]:
    """Free bytes in each control group of this process, version 2 and 1."""
    try:
        lines = (root / "proc" / "self" / "cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    left = []
    for line in lines:
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if not path:
            continue
        if not controllers:
            top, names = root / "sys/fs/cgroup", ("memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            top, names = root / "sys/fs/cgroup/memory", ("memory.limit_in_bytes", "memory.usage_in_bytes")
        else:
            continue
        inside = Path(path.lstrip("/"))
        for group in (
            inside,
            *inside.parents,
        ):  # a limit holds for all groups below it; in a container some are not visible
            left += [n for n in [_left(top / group, *names)] if n is not None]
    return left


def _left(group: Path, limit_name: str, used_name: str) -> int | None:
    try:
        limit = (group / limit_name).read_text(encoding="ascii").strip()
        used = int((group / used_name).read_text(encoding="ascii"))
        lines = (group / "memory.stat").read_text(encoding="ascii").splitlines()
    except (OSError, ValueError):
        return None
    if limit == "max":
        return None
    # the kernel reclaims inactive cached files when memory is needed
    cached = next((int(line.split()[1]) for line in lines if line.split()[0].endswith("inactive_file")), 0)
    return max(int(limit) - used + cached, 0)
