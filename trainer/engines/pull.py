"""L2 towards the weights that a run began with (Barone et al., 2017), kept beside the optimizer's states."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

PARENT = "parent"
"""The name of these weights in the optimizer's state, and in checkpoints."""


class ParentPull:
    """w += rate c (p - w) before every update, in fp32, of whatever tensors an optimizer steps on.

    As AdamW's weight decay does towards 0 (Loshchilov and Hutter, 2019): it is not divided by the gradients' second
    moments, and has no part in the gradient's norm. Under ZeRO the parent's weights are partitioned and offloaded like
    the moments, and are gathered, saved and set by their name as these are.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, coefficient: float) -> None:
        """Pull in the optimizer's steps inside `update`; steps outside it change nothing.

        Args:
            optimizer: hooked, not stored.
            coefficient: c; 0 pulls nothing, and keeps nothing.
        """
        self.coefficient = coefficient
        self._is_on = False
        self._parents: dict[Tensor, Tensor] = {}
        if coefficient:
            optimizer.register_step_pre_hook(self._before_step)
            optimizer.register_step_post_hook(self._after_step)

    @contextmanager
    def update(self) -> Iterator[None]:
        """The optimizer's steps in this block are one update."""
        self._is_on = True
        try:
            yield
        finally:
            self._is_on = False

    @property
    def lacks_weights(self) -> bool:
        """Whether `begin` is still to be called; the same on all ranks."""
        return self.coefficient > 0 and not self._parents

    def begin(self, optimizer: torch.optim.Optimizer) -> None:
        """Make room for the weights, filled with the present ones; once, when there is other state already."""
        if self.lacks_weights:
            for tensor, state in optimizer.state.items():
                self._parents[tensor] = state[PARENT] = tensor.detach().clone()

    def close(self) -> None:
        """Release the weights."""
        self._parents.clear()

    def _before_step(self, optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
        if not self._is_on:
            return
        is_skipped = getattr(optimizer, "found_inf", None)  # where the device decides: see `late`
        with torch.no_grad():
            for group in optimizer.param_groups:
                tensors = [tensor for tensor in group["params"] if tensor.grad is not None]
                if not tensors:
                    continue
                parents, weight = [self._parents[tensor] for tensor in tensors], self.coefficient * group["lr"]
                if is_skipped is None:
                    torch._foreach_lerp_(tensors, parents, weight)
                    continue
                weight_on_device = (1.0 - is_skipped).mul_(weight)
                for tensor, parent in zip(tensors, parents, strict=True):
                    tensor.lerp_(parent, weight_on_device)

    def _after_step(self, optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
        """An optimizer that has made its state anew has lost them there."""
        for group in optimizer.param_groups:
            for tensor in group["params"]:
                if tensor in self._parents:
                    optimizer.state[tensor].setdefault(PARENT, self._parents[tensor])
