"""Operators of ours, each in two ways: plain PyTorch, the oracle, which runs where there is no GPU, and Triton.

A device that is not there (`tests.device.pseudo`) runs the plain way and counts what is stated here of the other.
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

_LIBRARY: Any = torch.library.Library("zeromt", "FRAGMENT")  # type: ignore[no-untyped-call]


@dataclass(kw_only=True, frozen=True, slots=True)
class Operator:
    """What the Triton way of an operator costs a GPU."""

    launches: int
    """Kernels."""
    again: tuple[int, ...] = ()
    """How often the first of its tensor arguments, in their order, move to or from the chip's memory beside once."""


OPERATORS: dict[str, Operator] = {}
"""By name, as `zeromt::cross_entropy_`."""


def define(schema: str, plain: Callable[..., Any], *, cost: Operator, fake: Callable[..., Any] | None = None) -> Any:
    """Make an operator; returns what calls it.

    The Triton way is the function of the operator's name, without an underscore at its end, in
    `model.kernels.cuda.triton_kernels.NAME`; it is imported when a GPU first wants it.

    Args:
        schema: `name(Tensor x, ...) -> ...`, with what changes in place marked.
        plain: takes the arguments of the schema.
        cost: of the Triton way.
        fake: gives tensors of the right shapes without numbers; `plain` does where it is not given.
    """
    name = schema.partition("(")[0]
    _LIBRARY.define(schema)
    _LIBRARY.impl(name, plain, "CPU")
    torch.library.register_fake(f"zeromt::{name}", fake or plain, lib=_LIBRARY)
    _LIBRARY.impl(name, _on_gpu(name.rstrip("_")), "CUDA")
    OPERATORS[f"zeromt::{name}"] = cost
    return getattr(torch.ops.zeromt, name)


def _on_gpu(name: str) -> Callable[..., Any]:
    found: list[Callable[..., Any]] = []

    def run(*args: Any) -> Any:
        if not found:
            module = importlib.import_module(f"model.kernels.cuda.triton_kernels.{name}")
            found.append(getattr(module, name))
        return found[0](*args)

    return run
