"""An exponential moving average of the weights (Polyak and Juditsky, 1992), kept as optimizer state."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

EMA = "ema"
"""Its name in the optimizer's state, like `exp_avg` and `exp_avg_sq`."""


def decay_at(decay: float, num_updates: int) -> float:
    """min(decay, (1 + t) / (10 + t)) after t updates, so that the random first weights soon have no influence.

    As in Marian's exponential smoothing (Junczys-Dowmunt et al., 2018) and TensorFlow's ExponentialMovingAverage.
    """
    return min(decay, (1 + num_updates) / (10 + num_updates))


class WeightAverage:
    """e = d e + (1 - d) w after every update, in fp32, of whatever tensors an optimizer steps on.

    Under ZeRO these are a rank's fp32 master weights, wherever they are: the average is partitioned and offloaded like
    them, and can be gathered and set by its name like the optimizer's moments. A skipped update changes nothing:
    it makes no optimizer step, or one that the device skips by the optimizer's `found_inf`.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, decay: float) -> None:
        """Follow the optimizer's steps inside `update`; steps outside it change nothing.

        Args:
            optimizer: of the weights.
            decay: d after the first updates; see `decay_at`. 0 keeps no average.
        """
        self._optimizer, self._decay = optimizer, decay
        self._is_on = False
        self._first: dict[Tensor, Tensor] = {}
        self.num_updates = 0
        """Updates in the average."""
        optimizer.register_step_pre_hook(self._before_step)
        optimizer.register_step_post_hook(self._after_step)

    @contextmanager
    def update(self) -> Iterator[None]:
        """The optimizer's steps in this block are one update; `num_updates` counts it if it was applied."""
        self._is_on = self._decay > 0
        try:
            yield
        finally:
            self._is_on = False

    def begin(self) -> None:
        """Restart the average from the current tensors, which must have other state already: see `_before_step`."""
        for tensor, state in self._optimizer.state.items():
            state[EMA] = tensor.detach().clone()

    @property
    def has_begun(self) -> bool:
        """Whether there is an average; the same on all ranks."""
        return any(EMA in state for state in self._optimizer.state.values())

    def _before_step(self, optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
        """Remember the first weights: AdamW creates its own state only if there is none at all."""
        for tensor in self._stepped(optimizer):
            if EMA not in optimizer.state.get(tensor, {}):
                self._first[tensor] = tensor.detach().clone()

    def _after_step(self, optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
        tensors = self._stepped(optimizer)
        if not tensors:
            return
        for tensor in tensors:
            if tensor in self._first:
                optimizer.state[tensor][EMA] = self._first.pop(tensor)
        averages = [optimizer.state[tensor][EMA] for tensor in tensors]
        weight = 1 - decay_at(self._decay, self.num_updates)
        is_skipped = getattr(optimizer, "found_inf", None)
        if is_skipped is None:
            torch._foreach_lerp_(averages, [tensor.detach() for tensor in tensors], weight)
            return
        weight_on_device = (1.0 - is_skipped).mul_(weight)  # torch takes no such weight of many tensors at once
        for average, tensor in zip(averages, tensors, strict=True):
            average.lerp_(tensor.detach(), weight_on_device)

    def _stepped(self, optimizer: torch.optim.Optimizer) -> list[Tensor]:
        """The parameters that this step changes, by the rule of torch's optimizers."""
        if not self._is_on:
            return []
        return [tensor for group in optimizer.param_groups for tensor in group["params"] if tensor.grad is not None]
