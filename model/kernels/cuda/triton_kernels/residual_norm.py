"""`zeromt::residual_norm`: one program for each row."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from model.kernels.cuda.dropout import threshold
from model.kernels.cuda.triton_kernels.drop import random_words
from model.kernels.cuda.triton_kernels.launching import launch


def residual_norm(
    x: Tensor,
    y: Tensor,
    linear_bias_D: Tensor | None,
    weight_D: Tensor,
    bias_D: Tensor | None,
    tokens_N4: Tensor | None,
    site: int,
    p: float,
    eps: float,
) -> tuple[Tensor, ...]:
    """The operator `residual_norm` of `model.kernels.cuda.residual_norm`."""
    num_rows, width = x.shape[:-1].numel(), x.shape[-1]
    summed, normed = torch.empty_like(x), torch.empty_like(x)
    mean = torch.empty(num_rows, dtype=torch.float32, device=x.device)
    rstd = torch.empty_like(mean)
    if num_rows:
        launch(
            _rows,
            (num_rows, 1, 1),
            (x, y, linear_bias_D, weight_D, bias_D, tokens_N4, summed, normed, mean, rstd),
            (site, threshold(p), 1 / (1 - p), eps, width),
            {
                "BLOCK": block_of(width),
                "HAS_LINEAR_BIAS": linear_bias_D is not None,
                "HAS_BIAS": bias_D is not None,
                "DROPS": tokens_N4 is not None,
            },
            variant=(threshold(p), width),
            num_warps=warps_of(width),
        )
    return summed, normed, mean, rstd


def block_of(width: int) -> int:
    """Elements of a row in a program: the whole row, rounded up to a power of two."""
    return max(4, int(triton.next_power_of_2(width)))


def warps_of(width: int) -> int:
    """Number of warps of a program."""
    return max(1, min(8, block_of(width) // 256))


@triton.jit(do_not_specialize=("site",), do_not_specialize_on_alignment=("tokens",))
def _rows(
    x, y, linear_bias, weight, bias, tokens, summed, normed, means, rstds, site, drop_below, scale, eps, width,
    BLOCK: tl.constexpr, HAS_LINEAR_BIAS: tl.constexpr, HAS_BIAS: tl.constexpr, DROPS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    is_in = column < width
    at = row.to(tl.int64) * width + column
    added = tl.load(y + at, mask=is_in, other=0.0).to(tl.float32)
    if HAS_LINEAR_BIAS:
        added += tl.load(linear_bias + column, mask=is_in, other=0.0).to(tl.float32)
    if DROPS:
        words = random_words(tokens, row, site, 0, BLOCK // 4)
        added = tl.where(words >= drop_below, added * scale, 0.0)
    total = (tl.load(x + at, mask=is_in, other=0.0).to(tl.float32) + added).to(summed.dtype.element_ty)
    tl.store(summed + at, total, mask=is_in)
    s = total.to(tl.float32)  # rounded, as in the backward pass
    mean = 0.0
    if HAS_BIAS:
        mean = tl.sum(s, 0) / width
    s = tl.where(is_in, s - mean, 0.0)
    rstd = 1.0 / tl.sqrt(tl.sum(s * s, 0) / width + eps)
    out = s * rstd * tl.load(weight + column, mask=is_in, other=0.0).to(tl.float32)
    if HAS_BIAS:
        out += tl.load(bias + column, mask=is_in, other=0.0).to(tl.float32)
    tl.store(normed + at, out.to(normed.dtype.element_ty), mask=is_in)
    tl.store(means + row, mean)
    tl.store(rstds + row, rstd)
