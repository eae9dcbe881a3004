"""The loss on a GPU: one kernel computes the likelihoods and the gradient of the logits.

It reads the logits twice and writes them once: 6 bytes of memory traffic for a 16-bit logit, besides the matmuls; the
plain steps take 26.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from typing_extensions import override

from model.components.loss import CHUNK_BYTES, ROW_MULTIPLE, most_rows, padded_vocabulary
from model.kernels.cuda.operators import define
from model.loss import ChunkedCrossEntropy, LossSteps, add_weight_gradient, product, scaled


class CudaLossSteps(LossSteps):
    """The loss by the operator `zeromt::cross_entropy_`."""

    @override
    def sums(self, *given: Any) -> tuple[Tensor, Tensor]:
        found: tuple[Tensor, Tensor] = FusedCrossEntropy.apply(*given, self)  # type: ignore[no-untyped-call]
        return found


class FusedCrossEntropy(ChunkedCrossEntropy):
    """`ChunkedCrossEntropy` with the operator `zeromt::cross_entropy_` and a padded vocabulary."""

    @staticmethod
    @override
    def forward(
        ctx: Any, hidden_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None, targets_N: Tensor,
        scales_N: Tensor | None, gradient_scale: Tensor | None, smoothing: float, padding_id: int, with_grad: bool,
        *_: Any,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        num_rows, vocab = len(hidden_ND), len(weight_VD)
        weight_PD, bias_P = padded(weight_VD), None if bias_V is None else padded(bias_V)
        # zero hidden states: padding rows add nothing to the weight's gradient, even where they held NaN
        hidden_ND = hidden_ND.masked_fill((targets_N == padding_id)[:, None], 0.0)
        grad_hidden_ND = torch.empty_like(hidden_ND) if with_grad else None
        grad_weight_PD: Tensor | None = None
        grad_bias_P: Tensor | None = None
        needs_weight, needs_bias = ctx.needs_input_grad[1:3] if with_grad else (False, False)  # not of frozen ones
        losses_2N = torch.empty((2, num_rows), dtype=torch.float32, device=hidden_ND.device)
        chunk = chunk_rows(num_rows, len(weight_PD), hidden_ND.element_size())
        for begin in range(0, num_rows, chunk):
            rows = slice(begin, begin + chunk)
            h, scales = hidden_ND[rows], None if scales_N is None else scales_N[rows]
            logits_RP = F.linear(h, weight_PD, bias_P)
            given = logits_RP, targets_N[rows], losses_2N[:, rows], vocab, padding_id, smoothing
            cross_entropy_(*given, with_grad, gradient_scale, scales)
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


def chunk_rows(num_rows: int, num_columns: int, element: int) -> int:
    """Rows of a chunk, so that all chunks have about the same size."""
    num_chunks = max(1, -(-num_rows // most_rows(num_columns, element, CHUNK_BYTES)))
    return max(1, -(-num_rows // (num_chunks * ROW_MULTIPLE))) * ROW_MULTIPLE


def padded(x: Tensor) -> Tensor:
    """(V, ...) padded with zeros to (P, ...): a copy, or `x` itself if nothing is missing."""
    vocab, rows = x.shape[0], padded_vocabulary(x.shape[0])
    if rows == vocab:
        return x
    out = x.new_empty((rows, *x.shape[1:]))
    out[:vocab] = x
    out[vocab:] = 0
    return out


def _plain_cross_entropy_(
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
    log_p_RV = torch.log_softmax(logits_RP[:, :vocab], 1, dtype=torch.float32)
    is_padding_R, targets_R1 = targets_R == padding_id, targets_R[:, None]
    nll_R, mean_R = -log_p_RV.gather(1, targets_R1)[:, 0], -log_p_RV.mean(1)
    loss_R = (1 - smoothing) * nll_R + smoothing * mean_R if smoothing else nll_R  # not 0 times infinity
    if scales_R is not None:
        loss_R = scaled(loss_R, scales_R)
    losses_2R[0] = loss_R.masked_fill(is_padding_R, 0.0)
    losses_2R[1] = nll_R.masked_fill_(is_padding_R, 0.0)
    if not with_grad:
        return
    grad_RV = log_p_RV.exp_().sub_(smoothing / vocab)
    grad_RV.scatter_add_(1, targets_R1, torch.full_like(grad_RV[:, :1], smoothing - 1))
    factor = product(None if scales_R is None else scales_R[:, None], gradient_scale)
    if factor is not None:
        grad_RV.mul_(factor)
    logits_RP[:, :vocab] = grad_RV.masked_fill_(is_padding_R[:, None], 0.0)
    logits_RP[:, vocab:] = 0.0


cross_entropy_ = define(
    "cross_entropy_(Tensor(a!) logits, Tensor targets, Tensor(b!) losses, int vocab, int padding_id, float smoothing, "
    "bool with_grad, Tensor? gradient_scale=None, Tensor? scales=None) -> ()",
    _plain_cross_entropy_,
    launches=1,
)
"""Write losses and negative log-likelihoods of the rows to `losses` (2, R) in fp32; 0 where the target is padding.

With `with_grad` it also overwrites the logits with their gradient times `gradient_scale`: 0 in padding rows and in
columns from `vocab` on.

Args: logits (R, P), only the first `vocab` columns count; targets (R); gradient_scale () and scales (R) in fp32, see
`model.loss.CrossEntropy`.
"""
CUDA_STEPS = CudaLossSteps()
