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

    def chunk_rows(self, num_rows: int, weight_PD: Tensor) -> int:
        """Rows of a chunk, so that all chunks have about the same size."""
        num_chunks = max(1, -(-num_rows * weight_PD.shape[0] // CHUNK_ELEMENTS))
        return max(1, -(-num_rows // num_chunks))

    def padded(self, x: Tensor) -> Tensor:
        """(V, ...) padded with zeros to (P, ...), as many pieces as the device is to compute."""
        return x

    def cross_entropy_(self, *given: Any) -> None:
        """See `cross_entropy_` of this module."""
        cross_entropy_(*given)


def cross_entropy_(
    logits_RP: Tensor,
    targets_R: Tensor,
    losses_2R: Tensor,
    vocab: int,
    padding_id: int,
    smoothing: float,
    with_grad: bool,
    gradient_scale: Tensor | None = None,
    scales_R: Tensor | None = None,
) -> None:
    """Write losses and negative log-likelihoods of the rows to `losses_2R` in fp32; 0 where the target is padding.

    With `with_grad` it also overwrites the logits with their gradient times `gradient_scale`: 0 in padding rows and in
    columns from `vocab` on; otherwise their content is undefined afterwards. Uses few operators, because none of them
    finds the chunk in a cache.

    Args:
        logits_RP: only the first `vocab` columns count.
        targets_R, vocab, padding_id, smoothing: see `CrossEntropy`.
        gradient_scale, scales_R: () and (R) in fp32, see `CrossEntropy`.
    """
    log_p_RV = torch.log_softmax(logits_RP[:, :vocab], 1, dtype=torch.float32)
    is_padding_R, targets_R1 = targets_R == padding_id, targets_R[:, None]
    nll_R, mean_R = -log_p_RV.gather(1, targets_R1)[:, 0], -log_p_RV.mean(1)
    # without smoothing the mean over all pieces does not count, not even an infinite one
    loss_R = (1 - smoothing) * nll_R + smoothing * mean_R if smoothing else nll_R
    if scales_R is not None:
        loss_R = (loss_R * scales_R).masked_fill_(scales_R == 0, 0.0)  # not 0 times infinity
    losses_2R[0] = loss_R.masked_fill(is_padding_R, 0.0)
    losses_2R[1] = nll_R.masked_fill_(is_padding_R, 0.0)
    if not with_grad:
        return
    p_RV, factor = log_p_RV.exp_(), gradient_scale
    if scales_R is not None:
        factor = scales_R[:, None] if factor is None else scales_R[:, None] * factor
    p_RV.sub_(smoothing / vocab).scatter_add_(1, targets_R1, torch.full_like(p_RV[:, :1], smoothing - 1))
    if factor is not None:
        p_RV.mul_(factor)
    logits_RP[:, :vocab] = p_RV.masked_fill_(is_padding_R[:, None], 0.0)
    logits_RP[:, vocab:] = 0.0


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
        num_rows, vocab = len(hidden_ND), len(weight_VD)
        weight_PD, bias_P = steps.padded(weight_VD), None if bias_V is None else steps.padded(bias_V)
        # zero hidden states: padding rows add nothing to the weight's gradient, even where they held NaN
        hidden_ND = hidden_ND.masked_fill((targets_N == padding_id)[:, None], 0.0)
        grad_hidden_ND = torch.empty_like(hidden_ND) if with_grad else None
        grad_weight_PD: Tensor | None = None
        grad_bias_P: Tensor | None = None
        needs_weight, needs_bias = ctx.needs_input_grad[1:3] if with_grad else (False, False)  # not of frozen ones
        losses_2N = torch.empty((2, num_rows), dtype=torch.float32, device=hidden_ND.device)
        chunk = steps.chunk_rows(num_rows, weight_PD)
        for begin in range(0, num_rows, chunk):
            rows = slice(begin, begin + chunk)
            h, scales = hidden_ND[rows], None if scales_N is None else scales_N[rows]
            logits_RP = F.linear(h, weight_PD, bias_P)
            given = logits_RP, targets_N[rows], losses_2N[:, rows], vocab, padding_id, smoothing
            steps.cross_entropy_(*given, with_grad, gradient_scale, scales)
            if grad_hidden_ND is not None:
                torch.mm(logits_RP, weight_PD, out=grad_hidden_ND[rows])
                if needs_weight:
                    grad_weight_PD = add_weight_gradient(grad_weight_PD, logits_RP, h)
                if needs_bias:
                    chunk_grad_bias_P = logits_RP.sum(0, dtype=torch.float32)
                    grad_bias_P = chunk_grad_bias_P if grad_bias_P is None else grad_bias_P.add_(chunk_grad_bias_P)
            del logits_RP, given  # or two chunks would be in memory while the next is computed
        if not num_rows:
            grad_weight_PD = torch.zeros_like(weight_PD, dtype=torch.float32) if needs_weight else None
            grad_bias_P = torch.zeros_like(bias_P, dtype=torch.float32) if needs_bias and bias_P is not None else None
        ctx.save_for_backward(
            grad_hidden_ND,
            None if grad_weight_PD is None else grad_weight_PD[:vocab],
            None if grad_bias_P is None else grad_bias_P[:vocab],
            gradient_scale,
        )
        ctx.weight_dtype = weight_VD.dtype
        loss_sum, nll_sum = losses_2N.sum(1)
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
    """Add grad^T x to the total in fp32, in place; returns the total. None means zeros."""
    if total_OI is None:
        return torch.matmul(grad_RO.T, x_RI).float()
    if grad_RO.dtype == torch.float32:
        return total_OI.addmm_(grad_RO.T, x_RI)
    return total_OI.add_(torch.matmul(grad_RO.T, x_RI))
