"""The GPUs of this machine, and whether the installed torch can use them. Imports no torch, for the launcher."""

import ctypes
import importlib.util
import itertools
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from configs.errors import UserError

INSTEAD = "or train on the CPU: --device cpu, engine.device=cpu, or CUDA_VISIBLE_DEVICES= in the environment"
DRIVER = Path("/proc/driver/nvidia/gpus")
OLDEST_DRIVER = {13: 580, 12: 525}
"""The first driver for each major version of CUDA, as in installation/torch_builds.py, which no wheel holds."""
OLDEST_CARD_OF_CUDA_13 = (7, 5)
"""Compute capability; the sources are in installation/torch_builds.py."""


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
    return UserError(f"engine.device: this machine has {gpus}, and {reason}; {remedy()}, {INSTEAD}")


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


def remedy(capability: tuple[int, int] | None = None) -> str:
    """What to do about GPUs that the installed torch cannot use.

    Args:
        capability: of a card that torch has no code for.
    """
    newest = _newest_cuda()
    if newest is not None and newest < 12:
        return f"update the driver to {OLDEST_DRIVER[12]} or newer, then `make install CUDA=12`"
    is_old = newest == 12 or (capability is not None and capability < OLDEST_CARD_OF_CUDA_13)
    build = torch_build()
    if build is not None and build.cuda is not None and (build.cuda[0] == 12) == is_old:
        return "see what `nvidia-smi` says of driver and GPUs"
    return f"`make install CUDA={12 if is_old else 1}`"


def _newest_cuda() -> int | None:
    """The newest major version of CUDA that the driver serves, by its own version where it cannot be asked."""
    if (cuda := driver_cuda()) is not None:
        return cuda[0]
    version = _driver_version()
    if version is None:
        return None
    return next((cuda for cuda, oldest in OLDEST_DRIVER.items() if int(version.partition(".")[0]) >= oldest), 11)


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


def links() -> dict[tuple[int, int], str]:
    """What joins each two GPUs of this machine, as `nvidia-smi topo -m` names it (NV12, PIX, PHB, SYS ...), by numbers.

    Empty with fewer than two, or where nvidia-smi does not say.
    """
    rows = [re.sub(r"\x1b\[[0-9;]*m", "", row).split() for row in _nvidia_smi("topo", "-m") or ()]
    head = next((row for row in rows if row[:2] == ["GPU0", "GPU1"]), [])
    number = sum(re.fullmatch(r"GPU\d+", name) is not None for name in head)
    of_each = {row[0]: row[1:] for row in rows if row is not head and len(row) > number > 0}
    pairs = itertools.combinations(range(number), 2)
    return {(a, b): of_each[f"GPU{a}"][b] for a, b in pairs if f"GPU{a}" in of_each}


def describe_driver() -> str:
    """The driver's version and its CUDA version, as far as they are known."""
    version, cuda = _driver_version(), driver_cuda()
    return f"driver{f' {version}' if version else ''}" + (
        f", which serves CUDA {cuda[0]}.{cuda[1]}" if cuda is not None else ""
    )


def _driver_version() -> str | None:
    """Such as 535.104.05."""
    listed = _nvidia_smi("--query-gpu=driver_version", "--format=csv,noheader")
    return listed[0].strip() if listed and re.fullmatch(r"\d[\d.]*", listed[0].strip()) else None


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
