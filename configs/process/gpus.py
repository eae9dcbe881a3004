"""The GPUs of this machine. Imports no torch, for the launcher."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

from configs.errors import UserError

INSTEAD = "or train on the CPU: --device cpu, engine.device=cpu, or CUDA_VISIBLE_DEVICES= in the environment"
DRIVER = Path("/proc/driver/nvidia/gpus")
REMEDY = "`make install` takes the torch that fits driver and GPUs (the table in docs/install.md)"


def num_gpus(environ: Mapping[str, str], driver: Path = DRIVER) -> int:
    """Number of GPUs that a child with this environment sees.

    Args:
        environ: its CUDA_VISIBLE_DEVICES narrows what the driver reports, as CUDA documents it: CUDA stops at the first
            entry that names no GPU, and shows only one of several MIG instances.
        driver: the driver's folder with one entry for each GPU, read if nvidia-smi is missing.

    Raises:
        UserError: the variable has the number of a GPU that this machine does not have.
    """
    present, visible = _present(driver), environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None or not present:
        return present
    named = 0
    for device in map(str.strip, visible.split(",")):
        is_instance = device.upper().startswith("MIG-")
        if device.isdecimal() and int(device) >= present:
            known = "0" if present == 1 else f"0 to {present - 1}"
            raise UserError(
                f"CUDA_VISIBLE_DEVICES: {visible!r}, and this machine has no GPU {device}; its GPUs are {known} "
                "(nothing at all: train on the CPU)"
            )
        if not (device.isdecimal() or is_instance or device.upper().startswith("GPU-")) or (named and is_instance):
            break
        named += 1
        if is_instance:
            break
    return min(present, named)


def _present(driver: Path) -> int:
    """GPUs of this machine, visible or not."""
    try:
        done = subprocess.run(
            ["nvidia-smi", "-L"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return len(list(driver.iterdir())) if driver.is_dir() else 0
    return sum(line.startswith("GPU ") for line in done.stdout.splitlines())


def gpus_to_use(device: str, environ: Mapping[str, str]) -> int:
    """Number of GPUs that ranks on this machine will use; 0 for the CPU.

    Args:
        device: `engine.device`.
        environ: the ranks' environment.

    Raises:
        UserError: there are none where `device` is cuda, or fewer than are named.
    """
    if device == "cpu":
        return 0
    count = num_gpus(environ)
    if device == "cuda" and not count:
        raise no_gpu()
    return count


def unusable(num: int, reason: str) -> UserError:
    """The error for GPUs that torch cannot use."""
    gpus = f"{num} GPU{'s' * (num > 1)}"
    return UserError(f"engine.device: this machine has {gpus}, and {reason}; {REMEDY}, {INSTEAD}")


def no_gpu() -> UserError:
    """The error if a GPU is asked for and there is none."""
    return UserError("engine.device: cuda, and this machine shows no GPU; allowed here is auto or cpu")


def page_locked_bytes(num_bytes: int) -> int:
    """Bytes that torch allocates for page-locked host memory: it rounds up to a power of two."""
    return 1 << (num_bytes - 1).bit_length() if num_bytes > 0 else 0
