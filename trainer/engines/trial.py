"""Trial forward and backward passes on a plain copy of the model, to see what fits; the engine is not involved."""

import contextlib
import copy
import os
import resource
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from model.kernels import only_oom_safe_kernels
from model.layout import LayoutKind, first_possible
from trainer.engines.layouts import full_batch
from trainer.engines.protocol import Shape
from trainer.ranks.host_memory import available

MARGIN = 0.05
"""Fraction of a device's memory, or the host's free memory, left free by a search for budgets: memory fragments."""

PHRASES = (
    "out of memory",
    "can't allocate memory",
    "not enough memory",
    "bad_alloc",
    "ALLOC_FAILED",
    "Cannot allocate memory",
)
ONEDNN_MESSAGES = ("could not create a primitive", "could not execute a primitive", "could not create a memory object")
"""oneDNN's messages when it gets no memory. (For a missing kernel its message says 'primitive descriptor'.)"""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that a device or the host has no memory left; torch has several ways of saying it."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    if not isinstance(error, RuntimeError):
        return False
    return str(error) in ONEDNN_MESSAGES or any(phrase in str(error) for phrase in PHRASES)


def blueprint(module: nn.Module, dtype: torch.dtype) -> nn.Module:
    """A copy of a module without storage (meta device), with its parameters in another precision."""
    memo: dict[int, object] = {}
    for parameter in module.parameters():
        empty = torch.empty_like(parameter, dtype=dtype, device="meta")
        memo[id(parameter)] = nn.Parameter(empty, requires_grad=parameter.requires_grad)
    for buffer in module.buffers():
        memo[id(buffer)] = torch.empty_like(buffer, device="meta")
    return copy.deepcopy(module, memo)


def fits(
    plan: nn.Module, shapes: Sequence[Shape], device: torch.device, *, token: int, kind: LayoutKind | None = None
) -> bool:
    """Whether forward and backward passes on each of the shapes fit the device with `MARGIN` free, keeping gradients.

    Args:
        plan: a blueprint of a module that is called like `Objective` and returns the loss first.
        shapes: of micro-batches.
        device: to try on.
        token: any id except PAD.
        kind: the layout of the passes in training; None for the first that the plan's kernels have on the device.
    """
    try:
        with bounded_memory(device, margin=MARGIN):
            _run(plan, shapes, device, token, kind)
        return True
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        return False
    finally:
        if device.type == "cuda":
            torch.cuda.empty_cache()


def _run(plan: nn.Module, shapes: Sequence[Shape], device: torch.device, token: int, kind: LayoutKind | None) -> None:
    module: Any = copy.deepcopy(plan).to_empty(device=device).train()
    with torch.no_grad():
        for tensor in (*module.parameters(), *module.buffers()):
            tensor.zero_()
    if kind is None:
        kind, _ = first_possible(module.layouts(device, next(module.parameters()).dtype))
    for shape in shapes:
        loss = module(*full_batch(*shape, device, kind, token=token).arguments())[0]
        loss.backward()


@contextlib.contextmanager
def bounded_memory(device: torch.device, *, margin: float = 0.0) -> Iterator[None]:
    """On a CPU, make running out of memory an error: without a limit the kernel kills the process instead.

    The limit is what the process has now plus its part of the machine's free memory; it is lifted afterwards.

    Args:
        device: that computes.
        margin: a fraction of its memory to keep free meanwhile.
    """
    if device.type == "cuda":
        size = torch.cuda.get_device_properties(device).total_memory
        ballast = torch.empty(int(margin * size), dtype=torch.uint8, device=device)
        try:
            yield
        finally:
            del ballast
        return
    left = available() if device.type == "cpu" else None
    if left is None:
        yield
        return
    before = resource.getrlimit(resource.RLIMIT_DATA)
    limit = _data_bytes() + int((1 - margin) * left) // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    for bound in before:
        limit = limit if bound == resource.RLIM_INFINITY else min(limit, bound)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, before[1]))
    try:
        with only_oom_safe_kernels(device):
            yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def _data_bytes() -> int:
    """Bytes that this process has mapped for writing."""
    lines = Path("/proc/self/status").read_text(encoding="ascii", errors="ignore").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmData:"))
