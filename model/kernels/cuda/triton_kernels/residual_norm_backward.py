"""`zeromt::residual_norm_backward`: program i of P handles rows i, i + P, ... and sums their parameter gradients."""

import functools

import torch
import triton
import triton.language as tl
from torch import Tensor

from model.kernels.cuda.dropout import threshold
from model.kernels.cuda.triton_kernels.drop import random_words
from model.kernels.cuda.triton_kernels.launching import launch
from model.kernels.cuda.triton_kernels.residual_norm import block_of, warps_of

ELEMENTS = 4096
"""Elements of all rows that a multiprocessor works on at once, so that enough are on their way from memory: 8
programs of width 512, 4 of 1,024. Sums are added in a fixed order, so one kind of GPU always gives the same result."""
MOST_PROGRAMS = 16
"""Maximum for a multiprocessor: more are not alive at once."""
LEAST_ROWS = 8
"""Minimum for a program: the sums that it writes are then at most a sixth of what it reads."""
COLUMNS, ROWS = 16, 256
"""Columns for which one program adds the sums of all programs, and how many programs' sums at a time."""
MULTIPROCESSORS = 132
"""Those of an H100, for the interpreter, which has none."""


def residual_norm_backward(
    grad_normed: Tensor,
    grad_summed: Tensor | None,
    summed: Tensor,
    mean_N: Tensor,
    rstd_N: Tensor,
    weight_D: Tensor,
    tokens_N4: Tensor | None,
    site: int,
    p: float,
    is_centred: bool,
) -> tuple[Tensor, ...]:
    """The operator `residual_norm_backward` of `model.kernels.cuda.residual_norm`."""
    num_rows, width = summed.shape[:-1].numel(), summed.shape[-1]
    grad_x = torch.empty_like(summed)
    grad_y = summed.new_empty(0) if tokens_N4 is None else torch.empty_like(summed)
    sums_3D = weight_D.new_empty((3, width))
    programs = num_programs(num_rows, width, summed.device)
    parts_P3D = torch.empty((programs, 3, width), dtype=torch.float32, device=summed.device)
    launch(
        _rows,
        (programs, 1, 1),
        (grad_normed, grad_summed, summed, mean_N, rstd_N, weight_D, tokens_N4, grad_x, grad_y, parts_P3D),
        (site, threshold(p), 1 / (1 - p), num_rows, width, programs),
        {
            "BLOCK": block_of(width),
            "HAS_GRAD_SUMMED": grad_summed is not None,
            "IS_CENTRED": is_centred,
            "DROPS": tokens_N4 is not None,
        },
        variant=(threshold(p), width),
        num_warps=warps_of(width),
    )
    grid = (triton.cdiv(3 * width, COLUMNS), 1, 1)
    constants = {"ROWS": ROWS, "BLOCK": COLUMNS}
    launch(_add_up, grid, (parts_P3D, sums_3D), (programs, 3 * width), constants, variant=(width,))
    return grad_x, grad_y, sums_3D


def num_programs(num_rows: int, width: int, device: torch.device) -> int:
    """How many programs divide the rows among them."""
    of_each = min(MOST_PROGRAMS, max(1, ELEMENTS // block_of(width)))
    return max(1, min(_multiprocessors(device) * of_each, -(-num_rows // LEAST_ROWS)))


@functools.cache
def _multiprocessors(device: torch.device) -> int:
    if device.type != "cuda":
        return MULTIPROCESSORS
    return torch.cuda.get_device_properties(device).multi_processor_count


@triton.jit(do_not_specialize=("site", "num_rows", "programs"), do_not_specialize_on_alignment=("tokens",))
def _rows(
    grad_normed, grad_summed, summed, means, rstds, weight, tokens, grad_x, grad_y, parts, site, drop_below, scale,
    num_rows, width, programs, BLOCK: tl.constexpr, HAS_GRAD_SUMMED: tl.constexpr, IS_CENTRED: tl.constexpr,
    DROPS: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    is_in = column < width
    w = tl.load(weight + column, mask=is_in, other=0.0).to(tl.float32)
    grad_weight, grad_bias, grad_linear_bias = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32), tl.zeros(
        (BLOCK,), tl.float32
    )  # fmt: skip
    for number in range(program, num_rows, programs):
        row = tl.cast(number, tl.int64)
        at = row * width + column
        grad = tl.load(grad_normed + at, mask=is_in, other=0.0).to(tl.float32)
        s = tl.load(summed + at, mask=is_in, other=0.0).to(tl.float32)
        rstd = tl.load(rstds + row)
        normed = tl.where(is_in, (s - tl.load(means + row)) * rstd, 0.0)
        scaled = grad * w
        inner = scaled - normed * (tl.sum(scaled * normed, 0) / width)
        if IS_CENTRED:
            inner -= tl.sum(scaled, 0) / width
        out = inner * rstd
        if HAS_GRAD_SUMMED:
            out += tl.load(grad_summed + at, mask=is_in, other=0.0).to(tl.float32)
        tl.store(grad_x + at, out.to(grad_x.dtype.element_ty), mask=is_in)
        if DROPS:
            words = random_words(tokens, row, site, 0, BLOCK // 4)
            out = tl.where(words >= drop_below, out * scale, 0.0)
            tl.store(grad_y + at, out.to(grad_y.dtype.element_ty), mask=is_in)
        grad_weight += grad * normed
        grad_bias += grad
        grad_linear_bias += out
    at = parts + program.to(tl.int64) * 3 * width + column
    tl.store(at, grad_weight, mask=is_in)
    tl.store(at + width, grad_bias, mask=is_in)
    tl.store(at + 2 * width, grad_linear_bias, mask=is_in)


@triton.jit(do_not_specialize=("programs",))
def _add_up(parts, sums, programs, num_columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((ROWS, BLOCK), tl.float32)
    for begin in range(0, programs, ROWS):
        row = begin + tl.arange(0, ROWS)
        is_in = (row[:, None] < programs) & (column[None, :] < num_columns)
        total += tl.load(parts + row[:, None] * num_columns + column[None, :], mask=is_in, other=0.0)
    tl.store(sums + column, tl.sum(total, 0).to(sums.dtype.element_ty), mask=column < num_columns)
