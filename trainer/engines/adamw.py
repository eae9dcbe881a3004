"""torch's AdamW without starting torch's compiler, and its parameter groups."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

_TORCHS = torch.optim.AdamW


class NeverCompiled(torch.optim.Optimizer):
    """torch's own code, hooks and states, but never compiled.

    torch wraps these methods for torch.compile, and the first call of any of them imports torch._dynamo, which takes a
    second of every rank's start. Here each is the wrapped function (functools.wraps names it), or, if there is no
    wrapper, the method itself.
    """

    add_param_group: Callable[..., None] = inspect.unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad: Callable[..., None] = inspect.unwrap(torch.optim.Optimizer.zero_grad)
    state_dict: Callable[..., dict[str, Any]] = inspect.unwrap(torch.optim.Optimizer.state_dict)
    load_state_dict: Callable[..., None] = inspect.unwrap(torch.optim.Optimizer.load_state_dict)


class AdamW(NeverCompiled, _TORCHS):
    """AdamW (Loshchilov and Hutter, 2019). torch's wrapper of `step` also turns gradients off, as is done here."""

    step: Callable[..., Any] = torch.no_grad()(inspect.unwrap(_TORCHS.step))


SINCE = "since"
"""Key of a parameter group whose parameters were frozen at first: see `trainer.engines.protocol.Engine.trained`."""


def decay_groups(model: nn.Module, weight_decay: float, since: Mapping[nn.Parameter, int]) -> list[dict[str, Any]]:
    """AdamW's parameter groups: weight decay applies to matrices, not to norms and biases. None is empty.

    Args:
        model: whose parameters are trained, but for those without a gradient.
        weight_decay: of matrices.
        since: by parameter; those that were frozen at first have groups of their own.
    """
    parameters = [p for p in model.parameters() if p.requires_grad]
    groups: list[dict[str, Any]] = []
    for begin in dict.fromkeys([0, *(since[p] for p in parameters)]):
        alike = [p for p in parameters if since[p] == begin]
        own: dict[str, Any] = {SINCE: begin} if begin else {}
        groups += [
            {"params": [p for p in alike if p.ndim >= 2], "weight_decay": weight_decay, **own},
            {"params": [p for p in alike if p.ndim < 2], "weight_decay": 0.0, **own},
        ]
    return [group for group in groups if group["params"]]
