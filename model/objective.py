"""The training objective: a model and its loss."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from model.layout import LayoutKind
from model.loss import Loss
from model.transformer import Transformer


class ObjectiveOutput(NamedTuple):
    """Loss and likelihood, summed over the target tokens of a micro-batch."""

    loss_sum: Tensor
    """The differentiable loss: label-smoothed cross-entropy, in nats, each target's times its scale."""
    nll_sum: Tensor
    """Negative log-likelihood in nats, whatever the scales; the exponential of its mean is the perplexity."""


class Objective(nn.Module):
    """A model and its loss. The trainer uses both only through this class."""

    def __init__(self, model: Transformer, loss: Loss) -> None:
        super().__init__()
        self.model = model
        self.loss = loss

    def layouts(self, device: torch.device, dtype: torch.dtype) -> dict[LayoutKind, str]:
        """The layouts that kernels know, each with why a device cannot have it in a precision; empty if it can.

        Without a choice it is the first of those that it can have.
        """
        return {"none": ""}

    def forward(
        self,
        source_BS: Tensor,
        target_input_BT: Tensor,
        target_output_BT: Tensor,
        *,
        gradient_scale: Callable[[], Tensor] | None = None,
        scales_BT: Tensor | None = None,
    ) -> ObjectiveOutput:
        """Sums over the non-padding targets.

        Args:
            source_BS: source ids, padded, each row with EOS.
            target_input_BT: BOS followed by the target ids, padded.
            target_output_BT: the target ids followed by EOS, padded.
            gradient_scale: gives the factor, () in fp32, by which the caller will multiply the loss before backward.
                Losses that compute their gradients in the forward pass need it in fp16, where small gradients would
                underflow. It is called once the model has run and the loss is to come.
            scales_BT: in fp32, the factor of each target's loss, not of its likelihood.
        """
        hidden_BTD = self.model(source_BS, target_input_BT)
        return ObjectiveOutput(*self.model.output(hidden_BTD, target_output_BT, self.loss, scales_BT, gradient_scale))
