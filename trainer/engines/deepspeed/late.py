"""Clipping and skipping an update on the device, so that the host need not wait for the norm of its gradients.

torch's fused optimizers divide gradients by a tensor `grad_scale`, and change nothing where a tensor `found_inf` is 1,
their own count of steps included; `torch.amp.GradScaler` tells them so. The host reads the norm an update later.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor


def can_be_late(optimizer: torch.optim.Optimizer, device: torch.device) -> bool:
    """Whether the device can decide. On a CPU the norm is there as soon as it is computed."""
    return device.type != "cpu" and bool(getattr(optimizer, "_step_supports_amp_scaling", False))


@contextmanager
def decided_by(norm: Tensor, optimizer: Any, *, clip_norm: float, scale: float) -> Iterator[None]:
    """The optimizer's step within is decided by the device: not finite, the norm skips it, and large, it is clipped.

    Args:
        norm: of the gradients without their scale, (), on the device, in fp32.
        optimizer: that makes the step.
        clip_norm: gradients of a larger norm are scaled down to it; 0 clips none.
        scale: that gradients are multiplied by.
    """
    optimizer.found_inf = norm.mul(0.0).ne_(0.0)  # 0 times what is not finite is NaN
    if clip_norm > 0:
        optimizer.grad_scale = norm.add(1e-6).div_(clip_norm).clamp_(min=1.0).mul_(scale)
    elif scale != 1:
        optimizer.grad_scale = torch.full_like(norm, scale)
    try:
        yield
    finally:
        for name in ("grad_scale", "found_inf"):
            vars(optimizer).pop(name, None)
