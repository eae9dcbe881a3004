"""What a device does faster than the plain equations of `model`, put over a finished model.

`cpu/` is for CPUs, `cuda/` for GPUs. Everything outside of them is plain PyTorch and correct by itself: without those
folders the system trains and translates as before, slower. A folder is named as torch names the kind of device and
offers what it can of the functions below. Other code asks these, and never what a device is.
"""

import contextlib
import importlib
import importlib.util
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from types import ModuleType
from typing import Any, cast

import torch
from torch import Tensor, nn

STEPS_BETWEEN_LOOKS = 8
"""Of a search on a device that the host waits for: rows that have finished take up to seven steps more."""


def use_kernels(module: nn.Module, device: torch.device, kernels: str = "auto") -> None:
    """Let a finished module compute by a device's kernels.

    Parameters, their names and the results, up to rounding, stay; dropout draws other masks. Layers change their class
    in place, so the module can still be copied, saved, moved between precisions and wrapped.

    Args:
        module: a model or a part of one.
        device: where it is, or will be before it is called.
        kernels: `engine.kernels`: auto for those of the device, a folder's name, or plain for none.
    """
    name = device.type if kernels == "auto" else kernels
    if name != "plain" and (found := _folder(name)) is not None:
        found.use(module)


def has_kernels(device: torch.device) -> bool:
    """Whether there are any for this kind of device."""
    return _folder(device.type) is not None


@contextlib.contextmanager
def laid_out(models: Sequence[nn.Module], device: torch.device) -> Iterator[None]:
    """Within it, models that decode may hold copies of their weights laid out for the device; they must not change."""
    packed = _offer(device, "packed")
    with contextlib.nullcontext() if packed is None else packed(models):
        yield


def argmax(x: Tensor) -> Tensor:
    """The place of the largest number along the last dimension, the first of equal ones."""
    best = _offer(x.device, "argmax")
    return x.argmax(-1) if best is None else cast(Tensor, best(x))


def steps_between_looks(device: torch.device) -> int:
    """After how many steps a search looks at what it has found.

    On a CPU after each: it sees at once who has finished. Elsewhere the host waits for the device at every look, and
    the device for the host then.
    """
    steps = _offer(device, "STEPS_BETWEEN_LOOKS")
    return STEPS_BETWEEN_LOOKS if steps is None else int(steps)


def upload(numbers: Sequence[Any], device: torch.device, dtype: torch.dtype = torch.long) -> Tensor:
    """Numbers of the host as a tensor on the device; the host goes on meanwhile."""
    tensor = torch.tensor(numbers, dtype=dtype)
    return tensor if device.type == "cpu" else tensor.pin_memory().to(device, non_blocking=True)


def gains_by_bf16(device: torch.device) -> bool:
    """Whether the device multiplies matrices in bf16 faster than in fp32. Cards before Ampere emulate it, slowly."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    gains = _offer(device, "gains_by_bf16")
    return gains is not None and bool(gains())


def when_memory_may_run_out(device: torch.device) -> AbstractContextManager[None]:
    """Within it, nothing is used that does not recover from memory running out."""
    without = _offer(device, "without_onednn")
    return contextlib.nullcontext() if without is None else cast(AbstractContextManager[None], without())


def _offer(device: torch.device, name: str) -> Any:
    """What a device's kernels offer by this name; None where they do not."""
    return getattr(_folder(device.type), name, None)


def _folder(name: str) -> ModuleType | None:
    """The kernels of a kind of device; None where there are none."""
    if name not in _found:
        module = f"{__name__}.{name}"
        _found[name] = importlib.import_module(module) if importlib.util.find_spec(module) else None
    return _found[name]


_found: dict[str, ModuleType | None] = {}
