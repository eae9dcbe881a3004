"""The GPUs of this machine, and whether the installed torch can use them. Imports no torch, for the launcher."""

import ctypes
import importlib.util
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from configs.errors import UserError

INSTEAD = "or train on the CPU: --device cpu, engine.device=cpu, or CUDA_VISIBLE_DEVICES= in the environment"
DRIVER = Path("/proc/driver/nvidia/gpus")
REMEDY = "`make install` takes the torch that fits driver and GPUs (the table in docs/install.md)"


@dataclass(kw_only=True, slots=True, frozen=True)
class TorchBuild:
    """The platform that the installed torch was built for."""

    version: str
    cuda: tuple[int, int] | None
    """None for a build without CUDA."""


def num_gpus(environ: Mapping[str, str], driver: Path = DRIVER) -> int:
    """Number of GPUs that a child with this environment sees.

    Args:
        environ: its CUDA_VISIBLE_DEVICES narrows what the driver reports, as CUDA documents it.
        driver: the driver's folder with one entry for each GPU, read if nvidia-smi is missing.
    """
    present = _present(driver)
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    return present if visible is None else min(present, len(named_gpus(visible, present)))


def num_usable() -> int:
    """Number of GPUs that this process and its children see and can use."""
    return num_gpus(os.environ) if why_unusable() is None else 0


def refuse_missing(environ: Mapping[str, str], driver: Path = DRIVER) -> None:
    """Refuse numbers of GPUs that this machine does not have: CUDA would show those before them alone, or none.

    Raises:
        UserError: CUDA_VISIBLE_DEVICES has such a number, and the machine has a GPU.
    """
    visible = environ.get("CUDA_VISIBLE_DEVICES", "")
    numbers = [int(device) for device in re.findall(r"(?:^|,)\s*(\d+)\s*(?=,|$)", visible)]
    if not numbers or not (present := _present(driver)):
        return
    missing = [number for number in numbers if number >= present]
    if missing:
        known = "0" if present == 1 else f"0 to {present - 1}"
        raise UserError(
            f"CUDA_VISIBLE_DEVICES: {visible!r}, and this machine has no GPU {missing[0]}; its GPUs are {known} "
            "(nothing at all: train on the CPU)"
        )


def _present(driver: Path) -> int:
    """GPUs of this machine, visible or not."""
    listed = _nvidia_smi("-L")
    if listed is not None:
        return sum(line.startswith("GPU ") for line in listed)
    return len(list(driver.iterdir())) if driver.is_dir() else 0


def named_gpus(visible: str, present: int) -> list[str]:
    """The entries of CUDA_VISIBLE_DEVICES that are visible to a process.

    CUDA stops at the first invalid entry, and shows only one of several MIG instances.

    Args:
        visible: the variable.
        present: number of GPUs of the machine.
    """
    named: list[str] = []
    for device in map(str.strip, visible.split(",")):
        is_instance = device.upper().startswith("MIG-")
        if not _is_a_gpu(device, present) or (named and is_instance):
            break
        named.append(device)
        if is_instance:
            break
    return named


def _is_a_gpu(device: str, present: int) -> bool:
    return int(device) < present if device.isdecimal() else device.upper().startswith(("GPU-", "MIG-"))


def gpus_to_use(device: str, environ: Mapping[str, str]) -> int:
    """Number of GPUs that ranks on this machine will use; 0 for the CPU.

    Args:
        device: `engine.device`.
        environ: the ranks' environment.

    Raises:
        UserError: there are some that torch cannot use, or none where `device` is cuda, or fewer than are named.
    """
    if device == "cpu":
        return 0
    refuse_missing(environ)
    count = num_gpus(environ)
    if count and (reason := why_unusable()) is not None:
        raise unusable(count, reason)
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


def why_unusable() -> str | None:
    """Why the installed torch cannot use this machine's GPUs, as far as can be told without importing it."""
    build, driver = torch_build(), driver_cuda()
    if build is None:
        return None
    if build.cuda is None:
        return f"torch {build.version} is built without CUDA ({describe_driver()})"
    if driver is not None and driver[0] < build.cuda[0]:
        needs = f"CUDA {build.cuda[0]}.{build.cuda[1]}"
        return f"torch {build.version} is built for {needs}, too new for the {describe_driver()}"
    return None


def torch_build() -> TorchBuild | None:
    """Read from the version file of torch; None if torch or the file is missing."""
    try:
        spec = importlib.util.find_spec("torch")
        folders = spec.submodule_search_locations if spec is not None else None
        text = (Path(folders[0]) / "version.py").read_text(encoding="utf-8") if folders else ""
    except (OSError, ValueError, ImportError):
        return None
    version = re.search(r"^__version__ = '([^']+)'", text, re.MULTILINE)
    cuda = re.search(r"^cuda[^=]* = '(\d+)\.(\d+)[^']*'", text, re.MULTILINE)
    hip = re.search(r"^hip[^=]* = '[^']+'", text, re.MULTILINE)
    if version is None or hip is not None:  # a build for other vendors' GPUs, about which nothing is known
        return None
    return TorchBuild(version=version[1], cuda=(int(cuda[1]), int(cuda[2])) if cuda else None)


def driver_cuda() -> tuple[int, int] | None:
    """The newest CUDA version that the driver supports; None if the driver cannot be asked."""
    number = ctypes.c_int()
    try:
        library = ctypes.CDLL("libcuda.so.1")
        if library.cuDriverGetVersion(ctypes.byref(number)) != 0:
            return None
    except (OSError, AttributeError):  # nvidia-smi may be there without the library, as on a login node
        said = re.search(r"CUDA Version: (\d+)\.(\d+)", "\n".join(_nvidia_smi() or ()))
        return None if said is None else (int(said[1]), int(said[2]))
    return number.value // 1000, number.value % 1000 // 10


def describe_driver() -> str:
    """The CUDA version that the driver serves, as far as it is known."""
    cuda = driver_cuda()
    return "driver" if cuda is None else f"driver, which serves CUDA {cuda[0]}.{cuda[1]}"


def _nvidia_smi(*arguments: str) -> list[str] | None:
    """The lines that nvidia-smi prints; None if it fails."""
    try:
        done = subprocess.run(
            ["nvidia-smi", *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.splitlines() if done.returncode == 0 else None


def page_locked_bytes(num_bytes: int) -> int:
    """Bytes that torch allocates for page-locked host memory: it rounds up to a power of two."""
    return 1 << (num_bytes - 1).bit_length() if num_bytes > 0 else 0
