"""`zeromt::residual_norm_backward`: some programs that each take every so manieth row and add up what they find."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from model.kernels.cuda.philox import threshold
from model.kernels.cuda.triton_kernels.drop import words_of
from model.kernels.cuda.triton_kernels.residual_norm import block_of, warps_of

PROGRAMS = 256
"""Two for each multiprocessor of an H100. Their sums are added in one order, so that the result is always the same."""
COLUMNS = 64
"""Of which a program adds up what all have found."""


def residual_norm_backward(
    by_norm_ND: Tensor,
    by_sum_ND: Tensor | None,
    summed_ND: Tensor,
    mean_N: Tensor,
    deviation_N: Tensor,
    weight_D: Tensor,
    tokens_N4: Tensor | None,
    site: int,
    p: float,
    is_centred: bool,
) -> tuple[Tensor, ...]:
    """See `model.kernels.cuda.residuals`."""
    num_rows, width = summed_ND.shape
    by_x = torch.empty_like(summed_ND)
    by_y = summed_ND.new_empty(0) if tokens_N4 is None else torch.empty_like(summed_ND)
    sums_3D = weight_D.new_empty((3, width))
    programs = max(1, min(PROGRAMS, num_rows))
    parts_P3D = torch.empty((programs, 3, width), dtype=torch.float32, device=summed_ND.device)
    _rows[(programs,)](
        by_norm_ND, by_sum_ND, summed_ND, mean_N, deviation_N, weight_D, tokens_N4, by_x, by_y, parts_P3D,
        site, threshold(p), 1 / (1 - p), num_rows, width, programs, BLOCK=block_of(width), num_warps=warps_of(width),
        HAS_BY_SUM=by_sum_ND is not None, IS_CENTRED=is_centred, DROPS=tokens_N4 is not None,
    )  # fmt: skip
    _add_up[(triton.cdiv(3 * width, COLUMNS),)](
        parts_P3D, sums_3D, programs, 3 * width, ROWS=triton.next_power_of_2(programs), BLOCK=COLUMNS
    )
    return by_x, by_y, sums_3D


@triton.jit
def _rows(
    by_norm, by_sum, summed, means, deviations, weight, tokens, by_x, by_y, parts, site, least, scale,
    num_rows, width, programs, BLOCK: tl.constexpr, HAS_BY_SUM: tl.constexpr, IS_CENTRED: tl.constexpr,
    DROPS: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    is_in = column < width
    w = tl.load(weight + column, mask=is_in, other=0.0).to(tl.float32)
    by_weight, by_bias, by_linear = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32), tl.zeros(
        (BLOCK,), tl.float32
    )  # fmt: skip
    for number in range(program, num_rows, programs):
        row = tl.cast(number, tl.int64)
        at = row * width + column
        grad = tl.load(by_norm + at, mask=is_in, other=0.0).to(tl.float32)
        s = tl.load(summed + at, mask=is_in, other=0.0).to(tl.float32)
        deviation = tl.load(deviations + row)
        normed = tl.where(is_in, (s - tl.load(means + row)) * deviation, 0.0)
        scaled = grad * w
        inner = scaled - normed * (tl.sum(scaled * normed, 0) / width)
        if IS_CENTRED:
            inner -= tl.sum(scaled, 0) / width
        out = inner * deviation
        if HAS_BY_SUM:
            out += tl.load(by_sum + at, mask=is_in, other=0.0).to(tl.float32)
        tl.store(by_x + at, out.to(by_x.dtype.element_ty), mask=is_in)
        if DROPS:
            words = words_of(tokens, row, site, 0, BLOCK // 4)
            out = tl.where(words >= least, out * scale, 0.0)
            tl.store(by_y + at, out.to(by_y.dtype.element_ty), mask=is_in)
        by_weight += grad * normed
        by_bias += grad
        by_linear += out
    at = parts + program.to(tl.int64) * 3 * width + column
    tl.store(at, by_weight, mask=is_in)
    tl.store(at + width, by_bias, mask=is_in)
    tl.store(at + 2 * width, by_linear, mask=is_in)


@triton.jit
def _add_up(parts, sums, programs, num_columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = tl.arange(0, ROWS)
    is_in = (row[:, None] < programs) & (column[None, :] < num_columns)
    part = tl.load(parts + row[:, None] * num_columns + column[None, :], mask=is_in, other=0.0)
    tl.store(sums + column, tl.sum(part, 0).to(sums.dtype.element_ty), mask=column < num_columns)
