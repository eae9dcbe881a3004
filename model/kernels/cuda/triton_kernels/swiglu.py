"""`zeromt::swiglu`: one program for a block of a row."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from model.kernels.cuda.triton_kernels.launching import launch

MAX_COLUMNS = 1024
"""Most columns of a block."""


def swiglu(gate_RF: Tensor, inner_RF: Tensor) -> Tensor:
    """The operator `swiglu` of `model.kernels.cuda.gated`."""
    gate_RF, inner_RF = whole_rows(gate_RF), whole_rows(inner_RF)
    num_rows, width = gate_RF.shape
    out = torch.empty((num_rows, width), dtype=gate_RF.dtype, device=gate_RF.device)
    if num_rows:
        numbers = gate_RF.stride(0), inner_RF.stride(0), width
        block = block_of(width)
        launch(
            _blocks,
            (num_rows, triton.cdiv(width, block), 1),
            (gate_RF, inner_RF, out),
            numbers,
            {"BLOCK": block},
            variant=numbers,
        )
    return out


def whole_rows(x_RF: Tensor) -> Tensor:
    """With the elements of a row one behind the other."""
    return x_RF if x_RF.stride(1) == 1 else x_RF.contiguous()


def block_of(width: int) -> int:
    """Columns of a program."""
    return min(MAX_COLUMNS, int(triton.next_power_of_2(width)))


@triton.jit
def _blocks(gate, inner, out, gate_stride, inner_stride, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_in = column < width
    g = tl.load(gate + row * gate_stride + column, mask=is_in, other=0.0).to(tl.float32)
    x = tl.load(inner + row * inner_stride + column, mask=is_in, other=0.0).to(tl.float32)
    tl.store(out + row * width + column, (g * tl.sigmoid(g) * x).to(out.dtype.element_ty), mask=is_in)
