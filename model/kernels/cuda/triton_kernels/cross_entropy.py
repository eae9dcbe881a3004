"""`zeromt::cross_entropy_`: one program for each row of logits, which it reads in blocks of columns.

One pass finds the largest logit and the sum of exponentials, rescaling the sum at each new maximum (online softmax,
Milakov and Gimelshein, 2018); a second pass overwrites the logits with the gradient.
"""

import triton
import triton.language as tl
from torch import Tensor

MAX_COLUMNS = 8192
"""Most columns of a block."""


def cross_entropy(
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
    """The operator `cross_entropy_` of `model.kernels.cuda.loss`."""
    assert logits_RP.stride(1) == targets_R.stride(0) == losses_2R.stride(1) == 1, "rows must be contiguous"
    assert scales_R is None or scales_R.stride(0) == 1, "rows must be contiguous"
    num_rows, num_columns = logits_RP.shape
    if num_rows == 0:
        return
    block = min(MAX_COLUMNS, triton.next_power_of_2(num_columns))
    _rows[(num_rows,)](
        logits_RP, targets_R, losses_2R, scales_R, gradient_scale, vocab, num_columns, logits_RP.stride(0),
        losses_2R.stride(0), padding_id, smoothing, WITH_GRAD=with_grad, HAS_SCALES=scales_R is not None,
        HAS_GRADIENT_SCALE=gradient_scale is not None, BLOCK=block, num_warps=max(4, min(16, block // 512)),
    )  # fmt: skip


@triton.jit(
    do_not_specialize=("losses_stride",),
    do_not_specialize_on_alignment=("targets", "losses", "scales", "gradient_scale"),
)
def _rows(
    logits, targets, losses, scales, gradient_scale, vocab, num_columns, logits_stride, losses_stride, padding_id,
    smoothing, WITH_GRAD: tl.constexpr, HAS_SCALES: tl.constexpr, HAS_GRADIENT_SCALE: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)  # rows times columns may pass 2^31
    logits += row * logits_stride
    target = tl.load(targets + row)
    columns = tl.arange(0, BLOCK)
    if target == padding_id:
        tl.store(losses + row, 0.0)
        tl.store(losses + losses_stride + row, 0.0)
        if WITH_GRAD:
            for begin in range(0, num_columns, BLOCK):
                tl.store(logits + begin + columns, tl.zeros((BLOCK,), logits.dtype.element_ty),
                         mask=begin + columns < num_columns)  # fmt: skip
        return
    largest, total = float("-inf"), 0.0
    sums, at_target = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    for begin in range(0, vocab, BLOCK):
        c = begin + columns
        # masked by num_columns, a multiple of 16, so that a thread loads 16 bytes at once; by vocab it might be 2
        x = tl.load(logits + c, mask=c < num_columns, other=0.0).to(tl.float32)
        x = tl.where(c < vocab, x, float("-inf"))
        new = tl.maximum(largest, tl.max(x, 0))
        shift = tl.where(new == float("-inf"), 0.0, new)  # as long as all are -inf: -inf - -inf is NaN
        total = total * tl.exp(largest - shift) + tl.sum(tl.exp(x - shift), 0)
        largest = new
        sums += tl.where(c < vocab, x, 0.0)
        at_target += tl.where(c == target, x, 0.0)  # not a separate load: the second pass writes there
    log_total = tl.log(total) + largest
    nll = log_total - tl.sum(at_target, 0)
    mean_nll = log_total - tl.sum(sums, 0) / vocab
    # without smoothing the mean does not count, not even an infinite one
    loss = tl.where(smoothing == 0, nll, (1 - smoothing) * nll + smoothing * mean_nll)
    factor = 1.0
    if HAS_GRADIENT_SCALE:
        factor = tl.load(gradient_scale)
    if HAS_SCALES:
        scale = tl.load(scales + row)
        loss = tl.where(scale == 0, 0.0, loss * scale)  # not 0 times infinity
        factor *= scale
    tl.store(losses + row, loss)
    tl.store(losses + losses_stride + row, nll)
    if WITH_GRAD:
        for begin in range(0, num_columns, BLOCK):
            c = begin + columns
            x = tl.load(logits + c, mask=c < num_columns, other=0.0).to(tl.float32)
            grad = tl.exp(x - largest) / total - smoothing / vocab - tl.where(c == target, 1 - smoothing, 0.0)
            grad = tl.where(c < vocab, grad * factor, 0.0)
            tl.store(logits + c, grad.to(logits.dtype.element_ty), mask=c < num_columns)
