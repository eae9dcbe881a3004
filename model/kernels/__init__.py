"""Device-specific kernels that replace the plain modules of a finished model.

`cpu/` is for CPUs, `cuda/` for GPUs. All other code is plain PyTorch and correct without these folders, only slower. It
calls the functions here, and never asks for the device type.
"""

import contextlib
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

STEPS_ON_CPUS = 1
STEPS_BETWEEN_SYNCS = 8
"""Of `steps_between_syncs` elsewhere: finished rows take part in up to seven more steps."""


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
    if name == "cpu":
        from model.kernels import cpu

        cpu.use(module)
    elif name == "cuda":
        from model.kernels import cuda

        cuda.use(module)


def has_kernels(device: torch.device) -> bool:
    """Whether there are kernels for this type of device."""
    return device.type in ("cpu", "cuda")


def packed_weights(models: Sequence[nn.Module], device: torch.device) -> contextlib.AbstractContextManager[None]:
    """A context in which decoding may use weights repacked for the device. The weights must not change inside it."""
    if device.type != "cpu":
        return contextlib.nullcontext()
    from model.kernels.cpu import decoding

    return decoding.packed_weights(models)


def steps_between_syncs(device: torch.device) -> int:
    """The number of steps after which a search reads its results back to the host.

    On a CPU that is every step, so finished sentences are noticed at once. On other devices each read makes the host
    wait for the device, and then the device for the host.
    """
    return STEPS_ON_CPUS if device.type == "cpu" else STEPS_BETWEEN_SYNCS


def upload(numbers: Sequence[Any], device: torch.device, dtype: torch.dtype = torch.long) -> Tensor:
    """Copy numbers from the host to a tensor on the device, without waiting for the copy."""
    tensor = torch.tensor(numbers, dtype=dtype)
    return tensor if device.type == "cpu" else tensor.pin_memory().to(device, non_blocking=True)


def bf16_is_faster(device: torch.device) -> bool:
    """Whether matmuls are faster in bf16 than in fp32 on this device. GPUs before Ampere emulate bf16 slowly."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    from model.kernels.cpu import decoding

    return device.type == "cpu" and decoding.bf16_is_faster()
