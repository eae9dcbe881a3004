"""The cores of this machine: how many there are, and which of them ranks are bound to."""

import math
import os
import shutil
from collections.abc import Set
from dataclasses import dataclass
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
AUTO, OFF = "auto", "off"
BY_DEFAULT = "node"
"""The mode for `auto`, which torch recommends in case of doubt."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Binding:
    """The decision for the ranks of this machine."""

    mode: str | None
    """Value of torchrun's `--numa-binding`; None does not bind."""
    said: str
    """Text for the start message; empty if there is nothing to say."""


def choose_binding(asked: str, *, gpus: int, nodes: Path = NODES, allowed: Set[int] | None = None) -> Binding:
    """Whether and how to bind ranks.

    Args:
        asked: `engine.numa_binding`.
        gpus: number of GPUs that the ranks use.
        nodes: the kernel's folder of NUMA nodes.
        allowed: cores that this process may use; default: its affinity.
    """
    if asked == OFF or (asked == AUTO and not gpus):
        return Binding(mode=None, said="")
    obstacle = _obstacle(gpus, nodes, os.sched_getaffinity(0) if allowed is None else allowed)
    if obstacle is None:
        mode = BY_DEFAULT if asked == AUTO else asked
        return Binding(mode=mode, said=f"; bound to the cores beside their GPUs (engine.numa_binding={mode})")
    if asked == AUTO and obstacle == _ONE_NODE:  # the usual case, in which nothing is lost
        return Binding(mode=None, said="")
    return Binding(mode=None, said=f"; not bound to cores (engine.numa_binding={asked}): {obstacle}")


_ONE_NODE = "this machine has one node of memory"


def _obstacle(gpus: int, nodes: Path, allowed: Set[int]) -> str | None:
    """Why torchrun cannot bind the ranks; None if it can."""
    if not gpus:
        return "ranks are bound beside their GPUs, and compute on the CPU"
    cores = [node_cores for path in sorted(nodes.glob("node[0-9]*")) if (node_cores := _cores(path / "cpulist"))]
    if len(cores) < 2:
        return _ONE_NODE
    if not all(node_cores & allowed for node_cores in cores):
        return "a node of memory has no core that this job may use"
    if shutil.which("numactl") is None:
        return "numactl is missing; install it with the system's package manager"
    return None


def _cores(path: Path) -> set[int]:
    """Parse a kernel list such as `0-3,8`; empty for a node without cores."""
    try:
        ranges = [part.split("-") for part in path.read_text(encoding="ascii").strip().split(",") if part]
        return {core for ends in ranges for core in range(int(ends[0]), int(ends[-1]) + 1)}
    except (OSError, ValueError):
        return set()
