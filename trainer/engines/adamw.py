"""torch's AdamW without the start of torch's compiler, and what it decays."""

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

_TORCHS = torch.optim.AdamW


class AdamW(_TORCHS):
    """AdamW (Loshchilov and Hutter, 2019): torch's own code, hooks and states, for who never compiles the optimizer.

    torch wraps these methods for torch.compile, and the first call of any imports torch._dynamo: a second of every
    rank's start. Here each is the function under the wrappers (functools.wraps names it), or, should there be no
    wrapper, the method as it is. What else the wrapper of `step` does is to forbid gradients.
    """

    add_param_group: Callable[..., None] = inspect.unwrap(_TORCHS.add_param_group)
    zero_grad: Callable[..., None] = inspect.unwrap(_TORCHS.zero_grad)
    state_dict: Callable[..., dict[str, Any]] = inspect.unwrap(_TORCHS.state_dict)
    load_state_dict: Callable[..., None] = inspect.unwrap(_TORCHS.load_state_dict)
    step: Callable[..., Any] = torch.no_grad()(inspect.unwrap(_TORCHS.step))


def decay_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Its parameter groups: matrices decay, norms and biases do not."""
    parameters = list(model.parameters())
    return [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
