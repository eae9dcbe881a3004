"""What is trained: a model and its loss."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from model.layout import LayoutKind
from model.loss import CrossEntropy, Loss
from model.transformer import Transformer


class ObjectiveOutput(NamedTuple):
    """Sums over the target tokens of a micro-batch."""

    loss_sum: Tensor
    """What is differentiated: label-smoothed cross-entropy, in nats."""
    nll_sum: Tensor
    """Negative log-likelihood in nats; its mean's exponential is the perplexity."""


class Objective(nn.Module):
    """A model and its loss. The trainer knows nothing else of either."""

    def __init__(self, model: Transformer, loss: Loss) -> None:
        super().__init__()
        self.model = model
        self.loss = loss

    def layout_kind(self, device: torch.device, dtype: torch.dtype) -> tuple[LayoutKind, str]:
        """How its passes on a device, in a precision, are laid out, and why not packed, where that could be."""
        return "none", ""

    def forward(
        self, source_BS: Tensor, target_input_BT: Tensor, target_output_BT: Tensor, gradient_scale: float = 1.0
    ) -> ObjectiveOutput:
        """Sums of loss and likelihood over the targets that are not padding.

        Args:
            source_BS: source ids, padded, each row with EOS.
            target_input_BT: target ids behind BOS.
            target_output_BT: the same shifted by one, with EOS.
            gradient_scale: what the loss will be multiplied by before it is differentiated, for losses that form their
                gradients in the forward pass: in fp16 small ones would be lost.
        """
        loss = self.loss
        if gradient_scale != 1 and isinstance(loss, CrossEntropy):
            loss = loss.scaled(gradient_scale)
        hidden_BTD = self.model(source_BS, target_input_BT)
        return ObjectiveOutput(*self.model.output(hidden_BTD, target_output_BT, loss))
