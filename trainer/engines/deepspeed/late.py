"""Clipping and skipping an update on the device, so that the host need not wait for the norm of its gradients.

torch's fused optimizers divide gradients by a tensor `grad_scale`, and change nothing where a tensor `found_inf` is 1,
their own count of steps included; `torch.amp.GradScaler` tells them so. The host reads the norm an update later.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from trainer.engines.host_copy import HostCopy
from trainer.engines.protocol import StepResult


class Decision:
    """Whether an update is made, and by how much it is clipped: the host decides, or, in `late`, the device."""

    def __init__(self, optimizer: torch.optim.Optimizer, device: torch.device) -> None:
        """Nothing is late yet.

        Args:
            optimizer: that makes the steps.
            device: of the gradients.
        """
        self._optimizer: Any = optimizer
        self._clip_norm = 0.0
        self._scaler: Any = None
        self._scale = 1.0
        self._norm: HostCopy | None = None
        self.can_be_late = device.type != "cpu" and bool(getattr(optimizer, "_step_supports_amp_scaling", False))
        """Whether the device can decide. On a CPU the norm is there as soon as it is computed."""
        self.is_late = False
        """Whether the device decides on the present step: it is to be given the norm by `take`."""

    @contextmanager
    def late(self, clip_norm: float, scaler: Any = None) -> Iterator[None]:
        """The step within is decided by the device.

        Args:
            clip_norm: gradients of a larger norm are scaled down to it; 0 clips none.
            scaler: DeepSpeed's optimizer, if gradients are multiplied by its `loss_scale`: it updates that when the
                result is read.
        """
        self.is_late, self._clip_norm, self._norm = True, clip_norm, None
        self._scaler, self._scale = scaler, 1.0 if scaler is None else float(scaler.loss_scale)
        if scaler is not None:
            scaler._update_scale = lambda _: None  # hides the method, within
        try:
            yield
        finally:
            self.is_late = False
            if scaler is not None:
                del scaler._update_scale
            for name in ("grad_scale", "found_inf"):
                vars(self._optimizer).pop(name, None)

    def take(self, norm: Tensor) -> None:
        """Go by this norm, (), on the device: not finite, it skips the update, and large, it clips the gradients."""
        norm = norm.detach().to(torch.float32)
        if self._scale != 1:
            norm = norm / self._scale
        self._norm = HostCopy(norm)
        self._optimizer.found_inf = norm.mul(0.0).ne_(0.0)  # 0 times what is not finite is NaN
        if self._clip_norm > 0:
            divisor = norm.add(1e-6).div_(self._clip_norm).clamp_(min=1.0)
            self._optimizer.grad_scale = divisor if self._scale == 1 else divisor.mul_(self._scale)
        elif self._scale != 1:
            self._optimizer.grad_scale = torch.full_like(norm, self._scale)

    def result(self) -> StepResult:
        """Of the step that was made late."""
        assert self._norm is not None
        norm, scaler = self._norm, self._scaler

        def read() -> Tensor:
            found = norm.read()
            if scaler is not None:
                scaler._update_scale(not math.isfinite(float(found)))
            return found

        return StepResult(grad_norm=read)
