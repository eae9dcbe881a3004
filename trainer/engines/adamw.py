"""torch's AdamW without starting torch's compiler, and its parameter groups."""

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

_TORCHS = torch.optim.AdamW


class AdamW(_TORCHS):
    """AdamW (Loshchilov and Hutter, 2019): torch's own code, hooks and states, but never compiled.

    torch wraps these methods for torch.compile, and the first call of any of them imports torch._dynamo, which takes a
    second of every rank's start. Here each is the wrapped function (functools.wraps names it), or, if there is no
    wrapper, the method itself. The wrapper of `step` also turns gradients off, which is done here too.
    """

    add_param_group: Callable[..., None] = inspect.unwrap(_TORCHS.add_param_group)
    zero_grad: Callable[..., None] = inspect.unwrap(_TORCHS.zero_grad)
    state_dict: Callable[..., dict[str, Any]] = inspect.unwrap(_TORCHS.state_dict)
    load_state_dict: Callable[..., None] = inspect.unwrap(_TORCHS.load_state_dict)
    step: Callable[..., Any] = torch.no_grad()(inspect.unwrap(_TORCHS.step))


def decay_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """AdamW's parameter groups: weight decay applies to matrices, not to norms and biases."""
    parameters = list(model.parameters())
    return [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
