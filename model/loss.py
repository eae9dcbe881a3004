"""The output layer, and label-smoothed cross-entropy summed over tokens, computed in chunks of logits."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from typing_extensions import override

CHUNK_ELEMENTS = 1 << 26
"""Logits in memory at once: 256 MB in fp32, enough work for each kernel launch."""


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
    """Label-smoothed cross-entropy; padding targets add nothing.

    With p = softmax(hidden weight^T + bias), smoothing e and vocabulary size V, as in torch's `cross_entropy`:
    loss = (1 - e) * nll(target) + e * mean over the vocabulary of nll. The gradient with respect to the logits is
    p - (1 - e) * onehot - e / V.
    """

    label_smoothing: float

    def __call__(
        self,
        hidden_ND: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor | None,
        targets_N: Tensor,
        *,
        padding_id: int,
        scales_N: Tensor | None = None,
        gradient_scale: Tensor | None = None,
        steps: "LossSteps | None" = None,
    ) -> tuple[Tensor, Tensor]:
        """Sums of loss and negative log-likelihood in nats.

        Args:
            hidden_ND, weight_VD, bias_V, targets_N, padding_id: as of `Loss`.
            scales_N: in fp32, the factor of each row's loss and gradient, of any sign; not of its likelihood. A row of
                scale 0 adds nothing, not even where its loss is infinite.
            gradient_scale: (), in fp32, the factor by which the caller will multiply the loss. Gradients are computed
                in the forward pass, already times this factor, because small ones would underflow in fp16; the
                backward pass divides by it, so the result does not change.
            steps: of the device.

        Returns:
            Two scalars in fp32. The first is differentiable, once, with respect to hidden, weight and bias.
        """
        # decided here: inside the function gradients are always off, and needs_input_grad ignores the caller's no_grad
        with_grad = torch.is_grad_enabled() and any(
            x is not None and x.requires_grad for x in (hidden_ND, weight_VD, bias_V)
        )
        tensors = hidden_ND, weight_VD, bias_V, targets_N, scales_N, gradient_scale
        return (steps or PLAIN_STEPS).sums(*tensors, self.label_smoothing, padding_id, with_grad)


class OutputLayer(nn.Module):
    """Projects hidden states to logits, or, given targets, directly to the loss.

    Both use `forward`, because ZeRO-3 gathers a module's weights only around `forward`.
    """

    def __init__(self, width: int, vocab_size: int, *, padding_id: int, bias: bool = False) -> None:
        super().__init__()
        self.padding_id = padding_id
        self.steps = PLAIN_STEPS
        """How the device computes a `CrossEntropy`."""
        self.weight = nn.Parameter(torch.empty(vocab_size, width))
        self.bias = nn.Parameter(torch.zeros(vocab_size)) if bias else None

    def forward(
        self,
        hidden: Tensor,
        targets: Tensor | None = None,
        loss: Loss | None = None,
        scales: Tensor | None = None,
        gradient_scale: Callable[[], Tensor] | None = None,
    ) -> Tensor | tuple[Tensor, ...]:
        """Logits (..., V) of hidden states (..., D); given targets (...) and a loss, the result of `Loss`.

        `scales` (...) are those of the rows of the loss, `gradient_scale` is that of `Objective.forward`.
        """
        if targets is None or loss is None:
            return F.linear(hidden, self.weight, self.bias)
        more: dict[str, Any] = {} if scales is None else {"scales_N": scales.flatten()}
        if type(loss) is CrossEntropy:
            more |= {"steps": self.steps, "gradient_scale": gradient_scale and gradient_scale()}
        rows = hidden.flatten(0, -2), self.weight, self.bias, targets.flatten()
        return loss(*rows, padding_id=self.padding_id, **more)


class LossSteps:
    """How a device computes the loss, which kernels override. Padding rows are computed too: selecting the others would
    make the host wait for the device."""

    def sums(
        self, hidden_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None, targets_N: Tensor, scales_N: Tensor | None,
        gradient_scale: Tensor | None, smoothing: float, padding_id: int, with_grad: bool,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """`CrossEntropy`, with or without gradients."""
        apply: Callable[..., tuple[Tensor, Tensor]] = ChunkedCrossEntropy.apply
        tensors = hidden_ND, weight_VD, bias_V, targets_N, scales_N, gradient_scale
        return apply(*tensors, smoothing, padding_id, with_grad, self)

    def chunk_rows(self, num_rows: int, weight_VD: Tensor) -> int:
        """Rows of a chunk, so that all chunks have about the same size."""
        num_chunks = max(1, -(-num_rows * weight_VD.shape[0] // CHUNK_ELEMENTS))
        return max(1, -(-num_rows // num_chunks))

    def likelihoods_(
        self, logits_NV: Tensor, targets_N1: Tensor, smoothing: float, with_grad: bool, scales: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Negative log-likelihoods (N, 1) of the targets, and their means over the vocabulary (N, 1), in fp32.

        With `with_grad` the logits are overwritten by their gradient times the scales, (N, 1) or (); otherwise their
        content is undefined afterwards. Neither result is times the scales. Uses few operators, because none of
        them finds the chunk in a cache: together they move 26 bytes for a 16-bit logit.
        """
        log_p_NV = torch.log_softmax(logits_NV, 1, dtype=torch.float32)
        nll, mean_nll = -log_p_NV.gather(1, targets_N1), -log_p_NV.mean(1, keepdim=True)
        if with_grad:
            p_NV, each = log_p_NV.exp_(), smoothing / logits_NV.shape[1]
            factor: float | Tensor = 1.0
            if scales is not None:
                factor = scales
                p_NV.mul_(scales)
            at_target = p_NV.gather(1, targets_N1) + factor * (smoothing - 1 - each)
            torch.sub(p_NV, factor * each, out=logits_NV)
            logits_NV.scatter_(1, targets_N1, at_target.to(logits_NV.dtype))
        return nll, mean_nll


PLAIN_STEPS = LossSteps()


class ChunkedCrossEntropy(torch.autograd.Function):
    """`CrossEntropy` in chunks of rows, with the gradients computed in the forward pass."""

    @staticmethod
    @override
    def forward(
        ctx: Any, hidden_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None, targets_N: Tensor,
        scales_N: Tensor | None, gradient_scale: Tensor | None, smoothing: float, padding_id: int, with_grad: bool,
        steps: LossSteps,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
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
            grad = F.linear(h, weight_VD, bias_V)
            scales_R1 = None if scales_N is None else scales_N[begin : begin + chunk, None]
            likelihoods = steps.likelihoods_(grad, t, smoothing, with_grad, product(scales_R1, gradient_scale))
            nll, smooth = (x.masked_fill_(is_padding, 0.0) for x in likelihoods)
            nll_sum += nll.sum()
            # without smoothing the mean over all pieces does not count, not even an infinite one
            loss = (1 - smoothing) * nll + smoothing * smooth if smoothing else nll
            loss_sum += (loss if scales_R1 is None else scaled(loss, scales_R1)).sum()
            if grad_hidden_ND is not None:
                if grad_bias_V is not None:
                    grad_bias_V += grad.masked_fill(is_padding, 0.0).sum(0, dtype=torch.float32)
                grad_hidden_ND[begin : begin + chunk] = torch.matmul(grad, weight_VD).masked_fill_(is_padding, 0.0)
                if needs_weight:
                    grad_weight_VD = add_weight_gradient(grad_weight_VD, grad, h)
            del grad  # or two chunks would be in memory while the next is computed
        if needs_weight and grad_weight_VD is None:
            grad_weight_VD = torch.zeros_like(weight_VD, dtype=torch.float32)
        ctx.save_for_backward(grad_hidden_ND, grad_weight_VD, grad_bias_V, gradient_scale)
        ctx.weight_dtype = weight_VD.dtype
        ctx.mark_non_differentiable(nll_sum)
        return loss_sum, nll_sum

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of the forward pass times the gradient of the loss."""
        grad_hidden, grad_weight_VD, grad_bias, gradient_scale = ctx.saved_tensors
        scale = grads[0] if gradient_scale is None else grads[0] / gradient_scale
        out_VD = None
        if grad_weight_VD is not None:
            # written in the weight's layout: later additions to it would be four times slower in another
            out_VD = torch.empty(grad_weight_VD.shape, dtype=ctx.weight_dtype, device=scale.device)
            torch.mul(grad_weight_VD, scale, out=out_VD)
        return (
            grad_hidden * scale.to(grad_hidden.dtype),
            out_VD,
            None if grad_bias is None else (grad_bias * scale).to(ctx.weight_dtype),
            *[None] * 7,
        )


def add_weight_gradient(total_OI: Tensor | None, grad_RO: Tensor, x_RI: Tensor) -> Tensor:
    """Add grad^T x to the total in fp32, in place; returns the total. None stands for zeros."""
    if total_OI is None:
        return torch.matmul(grad_RO.T, x_RI).float()
    if grad_RO.dtype == torch.float32:
        return total_OI.addmm_(grad_RO.T, x_RI)
    return total_OI.add_(torch.matmul(grad_RO.T, x_RI))


def product(scales: Tensor | None, factor: Tensor | None) -> Tensor | None:
    """Both as one; None stands for 1."""
    if scales is None or factor is None:
        return factor if scales is None else scales
    return scales * factor


def scaled(losses: Tensor, scales: Tensor) -> Tensor:
    """Losses times scales; 0 where the scale is, not 0 times infinity."""
    return (losses * scales).masked_fill_(scales == 0, 0.0)
