"""The output layer, and the label-smoothed loss as (sum, tokens) without ever holding all logits."""

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

if TYPE_CHECKING:
    from model.transformer import Transformer

CHUNK_ELEMENTS = 1 << 22
"""Logits held at once: 16 MB in fp32, so that on a CPU they stay in the cache."""


class ObjectiveOutput(NamedTuple):
    """Sums over the target tokens of a micro-batch."""

    loss_sum: Tensor
    """Label-smoothed cross-entropy in nats; what is differentiated."""
    nll_sum: Tensor
    """Negative log-likelihood in nats; its mean's exponential is the perplexity."""


class OutputLayer(nn.Module):
    """Projects hidden states to logits; given targets, to the loss at once."""

    def __init__(self, width: int, vocab_size: int, *, padding_id: int) -> None:
        super().__init__()
        self.padding_id = padding_id
        self.weight = nn.Parameter(torch.empty(vocab_size, width))

    def forward(
        self, hidden: Tensor, targets: Tensor | None = None, label_smoothing: float = 0.0
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Logits (..., V) of hidden states (..., D); with targets (...), the sums of loss and likelihood instead."""
        if targets is None:
            return F.linear(hidden, self.weight)
        hidden_ND, targets_N = hidden.flatten(0, -2), targets.flatten()
        if hidden.device.type == "cpu":  # elsewhere a selection would make the host wait for the device
            rows = (targets_N != self.padding_id).nonzero()[:, 0]
            hidden_ND, targets_N = hidden_ND.index_select(0, rows), targets_N.index_select(0, rows)
        loss, nll = _ChunkedCrossEntropy.apply(
            hidden_ND, self.weight, targets_N, label_smoothing, self.padding_id
        )  # type: ignore[no-untyped-call]
        return loss, nll


class _ChunkedCrossEntropy(torch.autograd.Function):
    """Projection and label-smoothed cross-entropy, some rows at a time; gradients are formed in the forward pass.

    With p = softmax(logits), e the smoothing and V the vocabulary, as in torch's own `cross_entropy`:
    loss = (1 - e) * nll(target) + e * mean over the vocabulary of nll, so d loss / d logits = p - (1 - e) * onehot - e / V.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden_ND: Tensor, weight_VD: Tensor, targets_N: Tensor, smoothing: float, padding_id: int
    ) -> tuple[Tensor, Tensor]:
        num_rows, vocab = hidden_ND.shape[0], weight_VD.shape[0]
        needs_grad = ctx.needs_input_grad[0] or ctx.needs_input_grad[1]
        grad_hidden = torch.empty_like(hidden_ND) if needs_grad else None
        grad_weight = (
            torch.zeros(weight_VD.shape, dtype=torch.float32, device=weight_VD.device) if needs_grad else None
        )
        loss_sum = torch.zeros((), dtype=torch.float32, device=hidden_ND.device)
        nll_sum = torch.zeros_like(loss_sum)
        chunk = max(1, CHUNK_ELEMENTS // vocab)
        for begin in range(0, num_rows, chunk):
            h, t = hidden_ND[begin : begin + chunk], targets_N[begin : begin + chunk, None]
            log_p = F.log_softmax(h @ weight_VD.T, dim=-1, dtype=torch.float32)
            used = t != padding_id
            nll = -log_p.gather(1, t) * used
            smooth = -log_p.mean(1, keepdim=True) * used
            nll_sum += nll.sum()
            loss_sum += ((1 - smoothing) * nll + smoothing * smooth).sum()
            if grad_hidden is not None and grad_weight is not None:
                grad = log_p.exp_().sub_(smoothing / vocab)
                grad.scatter_add_(1, t, torch.full_like(nll, smoothing - 1))
                grad = (grad * used if not used.device.type == "cpu" else grad).to(h.dtype)
                torch.mm(grad, weight_VD, out=grad_hidden[begin : begin + chunk])
                grad_weight += grad.T @ h
        ctx.save_for_backward(grad_hidden, grad_weight)
        ctx.weight_dtype = weight_VD.dtype
        ctx.mark_non_differentiable(nll_sum)
        return loss_sum, nll_sum

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        grad_hidden, grad_weight = ctx.saved_tensors
        scale = grads[0]
        return (
            grad_hidden * scale.to(grad_hidden.dtype),
            (grad_weight * scale).to(ctx.weight_dtype),
            None,
            None,
            None,
        )


class Objective(nn.Module):
    """What is trained: a model and its loss. The trainer knows nothing else of either."""

    def __init__(self, model: "Transformer", *, label_smoothing: float) -> None:
        super().__init__()
        self.model = model
        self.label_smoothing = label_smoothing

    def forward(
        self, source_BS: Tensor, target_input_BT: Tensor, target_output_BT: Tensor
    ) -> ObjectiveOutput:
        """Sums of loss and likelihood over the targets that are not padding.

        Args:
            source_BS: source ids, padded, each row with its end mark.
            target_input_BT: target ids behind a begin mark. target_output_BT: the same shifted by one, with the end mark.
        """
        hidden_BTD = self.model(source_BS, target_input_BT)
        return ObjectiveOutput(*self.model.output(hidden_BTD, target_output_BT, self.label_smoothing))
