"""Device-specific kernels that replace the plain modules of a finished model.

`cpu/` is for CPUs, `cuda/` for GPUs. All other code is plain PyTorch and correct without these folders, only slower.
Each folder has the name of a torch device type and provides any of the functions below. Other code calls these
functions and never asks for the device type.
"""

import contextlib
import importlib
import importlib.util
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

STEPS_BETWEEN_SYNCS = 8
"""Default of `steps_between_syncs`: finished rows take part in up to seven more steps."""


def use_kernels(module: nn.Module, device: torch.device, kernels: str = "auto") -> None:
    """Make a finished module compute with a device's kernels.

    Parameters and their names stay the same, and so do results up to rounding; dropout draws other masks. The class of
    each layer changes in place, so the module can still be copied, saved, cast and wrapped.

    Args:
        module: a model or a part of one.
        device: the device that the module will run on.
        kernels: `engine.kernels`: auto for those of the device, the name of a folder here, or plain for none.
    """
    name = device.type if kernels == "auto" else kernels
    if name != "plain" and (package := _package(name)) is not None:
        package.use(module)


def has_kernels(device: torch.device) -> bool:
    """Whether there are kernels for this type of device."""
    return _package(device.type) is not None


@contextlib.contextmanager
def packed_weights(models: Sequence[nn.Module], device: torch.device) -> Iterator[None]:
    """A context in which decoding may use weights repacked for the device. The weights must not change inside it."""
    packed = _device_attribute(device, "packed_weights")
    with contextlib.nullcontext() if packed is None else packed(models):
        yield


def steps_between_syncs(device: torch.device) -> int:
    """The number of steps after which a search reads its results back to the host.

    On a CPU that is every step, so finished sentences are noticed at once. On other devices each read makes the host
    wait for the device, and then the device for the host.
    """
    steps = _device_attribute(device, "STEPS_BETWEEN_SYNCS")
    return STEPS_BETWEEN_SYNCS if steps is None else int(steps)


def upload(numbers: Sequence[Any], device: torch.device, dtype: torch.dtype = torch.long) -> Tensor:
    """Copy numbers from the host to a tensor on the device, without waiting for the copy."""
    tensor = torch.tensor(numbers, dtype=dtype)
    return tensor if device.type == "cpu" else tensor.pin_memory().to(device, non_blocking=True)


def bf16_is_faster(device: torch.device) -> bool:
    """Whether matmuls are faster in bf16 than in fp32 on this device. GPUs before Ampere emulate bf16 slowly."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    gains = _device_attribute(device, "bf16_is_faster")
    return gains is not None and bool(gains())


def _device_attribute(device: torch.device, name: str) -> Any:
    """The attribute of this name in a device's kernels; None if there is none."""
    return getattr(_package(device.type), name, None)


def _package(name: str) -> ModuleType | None:
    """The package of kernels for a device type; None if there is none."""
    if name not in _packages:
        module = f"{__name__}.{name}"
        _packages[name] = importlib.import_module(module) if importlib.util.find_spec(module) else None
    return _packages[name]


_packages: dict[str, ModuleType | None] = {}
