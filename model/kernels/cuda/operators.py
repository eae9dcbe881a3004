"""Custom operators, each with two implementations: Triton for GPUs, and plain PyTorch, the reference, elsewhere.

The pseudo device of the tests (`tests.device.pseudo`) runs the plain one and counts Triton's launches.
"""

import importlib
from collections.abc import Callable
from typing import Any

import torch

LIBRARY: Any = torch.library.Library("zeromt", "FRAGMENT")  # type: ignore[no-untyped-call]


LAUNCHES: dict[str, int] = {}
"""How many kernels an operator's Triton implementation launches, by name, such as `zeromt::cross_entropy_`."""


def define(schema: str, plain: Callable[..., Any], *, launches: int) -> Any:
    """Define an operator; returns the function that calls it.

    The Triton implementation is `model.kernels.cuda.triton_kernels.NAME.NAME`, where NAME is the operator's name
    without a trailing underscore. It is imported at the first call on a GPU.

    Args:
        schema: `name(Tensor x, ...) -> ...`, with in-place arguments marked as such.
        plain: the implementation in PyTorch, with the arguments of the schema.
        launches: how many kernels the Triton implementation launches.
    """
    name = schema.partition("(")[0]
    LIBRARY.define(schema)
    LIBRARY.impl(name, plain, "CPU")
    torch.library.register_fake(f"zeromt::{name}", plain, lib=LIBRARY)
    LIBRARY.impl(name, _on_gpu(name.rstrip("_")), "CUDA")
    LAUNCHES[f"zeromt::{name}"] = launches
    return getattr(torch.ops.zeromt, name)


def direct(function: type[torch.autograd.Function]) -> Callable[..., Any]:
    """`function.apply` without what torch does before it for transforms of torch.func: 30 Python calls each time."""
    apply: Callable[..., Any] = super(torch.autograd.Function, function).apply  # type: ignore[misc]
    return apply


def _on_gpu(name: str) -> Callable[..., Any]:
    loaded: list[Callable[..., Any]] = []

    def run(*args: Any) -> Any:
        if not loaded:
            loaded.append(getattr(importlib.import_module(f"model.kernels.cuda.triton_kernels.{name}"), name))
        with torch.cuda.device(args[0].device):  # Triton launches on the current device, wherever tensors are
            return loaded[0](*args)

    return run
