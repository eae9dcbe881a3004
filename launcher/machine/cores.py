"""The cores of this machine: how many there are, and whether ranks are bound to some of them."""

import math
import os
import shutil
from collections.abc import Set
from pathlib import Path


def num_cores(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Number of cores that this process may use, by its affinity and a container's quota."""
    cores = len(os.sched_getaffinity(0))
    try:
        quota, period = (cgroup / "cpu.max").read_text().split()
        return max(1, min(cores, math.ceil(int(quota) / int(period))))
    except (OSError, ValueError):  # no such file, or "max": no quota
        return cores


NODES = Path("/sys/devices/system/node")


def choose_binding(asked: str, *, gpus: int, nodes: Path = NODES, allowed: Set[int] | None = None) -> str | None:
    """The value of torchrun's `--numa-binding`; None does not bind the ranks.

    Args:
        asked: `engine.numa_binding`. `auto` binds each rank to the cores next to its GPU, where torchrun can do that.
        gpus: number of GPUs that the ranks use.
        nodes: the kernel's folder of NUMA nodes.
        allowed: cores that this process may use; default: its affinity.
    """
    if asked == "off" or not gpus:  # ranks are bound to the cores next to their GPUs
        return None
    if asked != "auto":
        return asked
    own = os.sched_getaffinity(0) if allowed is None else allowed
    cores = [on_node for path in nodes.glob("node[0-9]*") if (on_node := _cores(path / "cpulist"))]
    can_bind = len(cores) > 1 and all(on_node & own for on_node in cores) and shutil.which("numactl")
    return "node" if can_bind else None


def _cores(path: Path) -> set[int]:
    """Parse a kernel list such as `0-3,8`; empty for a node without cores."""
    try:
        ranges = [part.split("-") for part in path.read_text(encoding="ascii").strip().split(",") if part]
        return {core for ends in ranges for core in range(int(ends[0]), int(ends[-1]) + 1)}
    except (OSError, ValueError):
        return set()
