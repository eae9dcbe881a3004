"""`zeromt::relu_backward`: each program handles a few columns of all rows, so one launch sums them in a fixed order.

16 columns of 16-bit numbers are 32 bytes, the size of a memory transaction.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from model.kernels.cuda.triton_kernels.launching import launch

COLUMNS = 16
ROWS = 256


def relu_backward(grad_RO: Tensor, out_RO: Tensor) -> tuple[Tensor, Tensor]:
    """The operator `relu_backward` of `model.kernels.cuda.linear`."""
    grad_RO = grad_RO.contiguous()
    num_rows, width = out_RO.shape
    masked_RO, sums_O = torch.empty_like(out_RO), out_RO.new_empty(width)
    grid, constants = (triton.cdiv(width, COLUMNS), 1, 1), {"ROWS": ROWS, "COLUMNS": COLUMNS}
    tensors = grad_RO, out_RO, masked_RO, sums_O
    launch(_columns, grid, tensors, (num_rows, width), constants, variant=(width,), num_warps=8)
    return masked_RO, sums_O


@triton.jit(do_not_specialize=("num_rows",))
def _columns(grad, out, masked, sums, num_rows, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    row = tl.arange(0, ROWS)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for begin in range(0, num_rows, ROWS):
        r = (begin + row).to(tl.int64)
        at = r[:, None] * width + column[None, :]
        is_in = (r[:, None] < num_rows) & (column[None, :] < width)
        x = tl.load(grad + at, mask=is_in, other=0.0)
        x = tl.where(tl.load(out + at, mask=is_in, other=0.0) > 0, x, 0.0)
        tl.store(masked + at, x.to(masked.dtype.element_ty), mask=is_in)
        total += x.to(tl.float32)
    tl.store(sums + column, tl.sum(total, 0).to(sums.dtype.element_ty), mask=column < width)
