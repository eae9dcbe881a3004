"""Cores and GPUs of this machine, counted without torch."""

import math
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path


def num_cores(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Cores that this process may use: its affinity, and a container's quota where there is one."""
    cores = len(os.sched_getaffinity(0))
    try:
        quota, period = (cgroup / "cpu.max").read_text().split()
        return max(1, min(cores, math.ceil(int(quota) / int(period))))
    except (OSError, ValueError):  # no such file, or "max": no quota
        return cores


def num_gpus(environ: Mapping[str, str], driver: Path = Path("/proc/driver/nvidia/gpus")) -> int:
    """GPUs that a child with this environment sees.

    Args:
        environ: its CUDA_VISIBLE_DEVICES narrows what the driver reports, as CUDA documents it.
        driver: the driver's folder with one entry for each GPU, asked where nvidia-smi is missing.
    """
    present = _nvidia_smi()
    if present is None:
        present = len(list(driver.iterdir())) if driver.is_dir() else 0
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return present
    named = 0
    for device in visible.split(","):  # CUDA stops at the first entry that is no device
        if not device.strip() or device.strip().startswith("-"):
            break
        named += 1
    return min(present, named)


def _nvidia_smi() -> int | None:
    """GPUs that `nvidia-smi -L` lists; None where it cannot say."""
    try:
        listed = subprocess.run(
            ["nvidia-smi", "-L"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if listed.returncode != 0:
        return None
    return sum(line.startswith("GPU ") for line in listed.stdout.splitlines())
