"""torch's AdamW without the start of torch's compiler."""

import inspect
from collections.abc import Callable
from typing import Any

import torch

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
