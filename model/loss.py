"""The output layer, and label-smoothed cross-entropy summed over tokens, computed in chunks of logits."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from typing_extensions import override

CHUNK_ELEMENTS = 1 << 26
"""Logits in memory at once: 256 MB in fp32, enough work for each kernel launch."""


class LossSteps:
    """The operations of the chunked loss, which devices can override. Not recorded by autograd."""

    def chunk_rows(self, num_rows: int, weight_VD: Tensor) -> int:
        """Rows of a chunk, so that all chunks have about the same size."""
        num_chunks = max(1, -(-num_rows * weight_VD.shape[0] // CHUNK_ELEMENTS))
        return max(1, -(-num_rows // num_chunks))

    def multiply(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """x weight^T + bias (..., O) for x (..., I) and weight (O, I) with any strides."""
        return F.linear(x, weight, bias)

    def add_weight_gradient(self, total_OI: Tensor | None, grad_RO: Tensor, x_RI: Tensor) -> Tensor:
        """Add grad^T x to the total in fp32, in place; returns the total. None stands for zeros."""
        if total_OI is None:
            return torch.matmul(grad_RO.T, x_RI).float()
        if grad_RO.dtype == torch.float32:
            return total_OI.addmm_(grad_RO.T, x_RI)
        return total_OI.add_(torch.matmul(grad_RO.T, x_RI))

    def likelihoods_(
        self,
        logits_NV: Tensor,
        targets_N1: Tensor,
        smoothing: float,
        with_grad: bool,
        gradient_scale: float,
        scales_N1: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Negative log-likelihoods (N, 1) of the targets, and their means over the vocabulary (N, 1), in fp32.

        With `with_grad` the logits are overwritten by their scaled gradient (see `cross_entropy_sums`); otherwise their
        content is undefined afterwards. Neither result is times the rows' scales. Uses few operators, because none of
        them finds the chunk in a cache: together they move 26 bytes for a 16-bit logit.
        """
        log_p_NV = torch.log_softmax(logits_NV, 1, dtype=torch.float32)
        nll, mean_nll = -log_p_NV.gather(1, targets_N1), -log_p_NV.mean(1, keepdim=True)
        if with_grad:
            p_NV, each = log_p_NV.exp_(), smoothing / logits_NV.shape[1]
            scale = gradient_scale if scales_N1 is None else gradient_scale * scales_N1
            if scales_N1 is not None or gradient_scale != 1:
                p_NV.mul_(scale)
            at_target = p_NV.gather(1, targets_N1) + scale * (smoothing - 1 - each)
            torch.sub(p_NV, scale * each, out=logits_NV)
            logits_NV.scatter_(1, targets_N1, at_target.to(logits_NV.dtype))
        return nll, mean_nll


PLAIN_STEPS = LossSteps()


class Loss(Protocol):
    """A training loss, as a function of hidden states and the output matrix."""

    def __call__(
        self,
        hidden_ND: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor | None,
        targets_N: Tensor,
        *,
        padding_id: int,
        scales_N: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        """The differentiable loss and the negative log-likelihood in nats, both summed over all rows, in fp32.

        Rows whose target is padding add nothing. `scales_N`, in fp32, is given only where pairs have weights: each
        row's loss counts times its scale, its likelihood once.
        """
        ...


@dataclass(frozen=True, slots=True)
class CrossEntropy:
    """Label-smoothed cross-entropy: see `cross_entropy_sums`."""

    label_smoothing: float
    gradient_scale: float = 1.0

    def scaled(self, gradient_scale: float) -> "CrossEntropy":
        """The same loss with another gradient scale."""
        return replace(self, gradient_scale=gradient_scale)

    def __call__(
        self,
        hidden_ND: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor | None,
        targets_N: Tensor,
        *,
        padding_id: int,
        scales_N: Tensor | None = None,
        steps: LossSteps = PLAIN_STEPS,
        function: "type[ChunkedCrossEntropy] | None" = None,
    ) -> tuple[Tensor, Tensor]:
        """Sums of loss and negative log-likelihood; `scales_N`, `steps` and `function` as for `cross_entropy_sums`."""
        return cross_entropy_sums(
            hidden_ND,
            weight_VD,
            targets_N,
            bias_V,
            label_smoothing=self.label_smoothing,
            padding_id=padding_id,
            gradient_scale=self.gradient_scale,
            scales_N=scales_N,
            steps=steps,
            function=function,
        )


class OutputLayer(nn.Module):
    """Projects hidden states to logits, or, given targets, directly to the loss.

    Both use `forward`, because ZeRO-3 gathers a module's weights only around `forward`.
    """

    def __init__(self, width: int, vocab_size: int, *, padding_id: int, bias: bool = False) -> None:
        super().__init__()
        self.padding_id = padding_id
        self.weight = nn.Parameter(torch.empty(vocab_size, width))
        self.bias = nn.Parameter(torch.zeros(vocab_size)) if bias else None

    def forward(
        self,
        hidden: Tensor,
        targets: Tensor | None = None,
        loss: Loss | None = None,
        scales: Tensor | None = None,
    ) -> Tensor | tuple[Tensor, ...]:
        """Logits (..., V) of hidden states (..., D); given targets (...) and a loss, the result of `Loss`.

        `scales` (...) are those of the rows of the loss.
        """
        if targets is None or loss is None:
            return F.linear(hidden, self.weight, self.bias)
        if scales is None:
            return self.sums(hidden.flatten(0, -2), targets.flatten(), loss)
        return self.sums(hidden.flatten(0, -2), targets.flatten(), loss, scales.flatten())

    def sums(
        self, hidden_ND: Tensor, targets_N: Tensor, loss: Loss, scales_N: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """Sums of loss and negative log-likelihood. Padding rows are computed too: selecting the others would make the
        host wait for the device."""
        if scales_N is None:  # a loss that takes none need not
            return loss(hidden_ND, self.weight, self.bias, targets_N, padding_id=self.padding_id)
        return loss(hidden_ND, self.weight, self.bias, targets_N, padding_id=self.padding_id, scales_N=scales_N)


def cross_entropy_sums(
    hidden_ND: Tensor,
    weight_VD: Tensor,
    targets_N: Tensor,
    bias_V: Tensor | None = None,
    *,
    label_smoothing: float,
    padding_id: int,
    gradient_scale: float = 1.0,
    scales_N: Tensor | None = None,
    steps: LossSteps = PLAIN_STEPS,
    function: "type[ChunkedCrossEntropy] | None" = None,
) -> tuple[Tensor, Tensor]:
    """Sums of label-smoothed cross-entropy and negative log-likelihood in nats; padding targets add nothing.

    With p = softmax(hidden weight^T + bias), smoothing e and vocabulary size V, as in torch's `cross_entropy`:
    loss = (1 - e) * nll(target) + e * mean over the vocabulary of nll. The gradient with respect to the logits is
    p - (1 - e) * onehot - e / V.

    Args:
        gradient_scale: the factor by which the caller will multiply the loss. Gradients are computed in the forward
            pass, already times this factor, because small ones would underflow in fp16; the backward pass divides by
            it, so the result does not change.
        scales_N: in fp32, the factor of each row's loss and gradient, of any sign; not of its likelihood. A row of
            scale 0 adds nothing, not even where its loss is infinite.
        steps: the operations.
        function: another implementation of ChunkedCrossEntropy.

    Returns:
        Two scalars in fp32. The first is differentiable, once, with respect to hidden, weight and bias.
    """
    # decided here: inside the function gradients are always off, and needs_input_grad ignores the caller's no_grad
    with_grad = torch.is_grad_enabled() and any(
        x is not None and x.requires_grad for x in (hidden_ND, weight_VD, bias_V)
    )
    apply: Callable[..., tuple[Tensor, Tensor]] = (function or ChunkedCrossEntropy).apply
    scale = gradient_scale if with_grad else None
    return apply(hidden_ND, weight_VD, bias_V, targets_N, scales_N, label_smoothing, padding_id, scale, steps)


class ChunkedCrossEntropy(torch.autograd.Function):
    """`cross_entropy_sums` in chunks of rows, with the gradients computed in the forward pass.

    The gradient scale is None where no gradients are needed.
    """

    @staticmethod
    @override
    def forward(
        ctx: Any,
        hidden_ND: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor | None,
        targets_N: Tensor,
        scales_N: Tensor | None,
        smoothing: float,
        padding_id: int,
        gradient_scale: float | None,
        steps: LossSteps,
    ) -> tuple[Tensor, Tensor]:
        with_grad, gradient_scale = gradient_scale is not None, gradient_scale or 0.0
        num_rows = hidden_ND.shape[0]
        grad_hidden_ND = torch.empty_like(hidden_ND) if with_grad else None
        grad_weight_VD: Tensor | None = None
        needs_weight, needs_bias = ctx.needs_input_grad[1:3] if with_grad else (False, False)  # not of frozen ones
        grad_bias_V = torch.zeros_like(bias_V, dtype=torch.float32) if needs_bias and bias_V is not None else None
        loss_sum = torch.zeros((), dtype=torch.float32, device=hidden_ND.device)
        nll_sum = torch.zeros_like(loss_sum)
        chunk = steps.chunk_rows(num_rows, weight_VD)
        for begin in range(0, num_rows, chunk):
            t = targets_N[begin : begin + chunk, None]
            is_padding = t == padding_id
            # zero hidden states: padding rows add nothing to the weight's gradient
            h = hidden_ND[begin : begin + chunk].masked_fill(is_padding, 0.0)
            grad = steps.multiply(h, weight_VD, bias_V)
            scales_R1 = None if scales_N is None else scales_N[begin : begin + chunk, None]
            likelihoods = steps.likelihoods_(grad, t, smoothing, with_grad, gradient_scale, scales_R1)
            nll, smooth = (x.masked_fill_(is_padding, 0.0) for x in likelihoods)
            nll_sum += nll.sum()
            # without smoothing the mean over all pieces does not count, not even an infinite one
            loss = (1 - smoothing) * nll + smoothing * smooth if smoothing else nll
            loss_sum += (loss if scales_R1 is None else scaled(loss, scales_R1)).sum()
            if grad_hidden_ND is not None:
                if grad_bias_V is not None:
                    grad_bias_V += grad.masked_fill(is_padding, 0.0).sum(0, dtype=torch.float32)
                grad_hidden_ND[begin : begin + chunk] = steps.multiply(grad, weight_VD.T).masked_fill_(is_padding, 0.0)
                if needs_weight:
                    grad_weight_VD = steps.add_weight_gradient(grad_weight_VD, grad, h)
            del grad  # or two chunks would be in memory while the next is computed
        if needs_weight and grad_weight_VD is None:
            grad_weight_VD = torch.zeros_like(weight_VD, dtype=torch.float32)
        ctx.save_for_backward(grad_hidden_ND, grad_weight_VD, grad_bias_V)
        ctx.weight_dtype, ctx.gradient_scale = weight_VD.dtype, gradient_scale
        ctx.mark_non_differentiable(nll_sum)
        return loss_sum, nll_sum

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of the forward pass times the gradient of the loss."""
        grad_hidden, grad_weight_VD, grad_bias = ctx.saved_tensors
        scale = grads[0] if ctx.gradient_scale == 1 else grads[0] / ctx.gradient_scale
        out_VD = None
        if grad_weight_VD is not None:
            # written in the weight's layout: later additions to it would be four times slower in another
            out_VD = torch.empty(grad_weight_VD.shape, dtype=ctx.weight_dtype, device=scale.device)
            torch.mul(grad_weight_VD, scale, out=out_VD)
        return (
            grad_hidden * scale.to(grad_hidden.dtype),
            out_VD,
            None if grad_bias is None else (grad_bias * scale).to(ctx.weight_dtype),
            *[None] * 6,
        )


def scaled(losses: Tensor, scales: Tensor) -> Tensor:
    """Losses times scales; 0 where the scale is, not 0 times infinity."""
    return (losses * scales).masked_fill_(scales == 0, 0.0)
