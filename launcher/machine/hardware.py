"""Cores of this machine."""

import math
import os
from pathlib import Path


def num_cores(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Number of cores that this process may use, by its affinity and a container's quota."""
    cores = len(os.sched_getaffinity(0))
    try:
        quota, period = (cgroup / "cpu.max").read_text().split()
        return max(1, min(cores, math.ceil(int(quota) / int(period))))
    except (OSError, ValueError):  # no such file, or "max": no quota
        return cores
