"""`zeromt::swiglu_backward`: one program for a block of a row."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from model.kernels.cuda.triton_kernels.launching import launch
from model.kernels.cuda.triton_kernels.swiglu import block_of, whole_rows


def swiglu_backward(grad_RF: Tensor, gate_RF: Tensor, inner_RF: Tensor) -> Tensor:
    """The operator `swiglu_backward` of `model.kernels.cuda.gated`."""
    grad_RF, gate_RF, inner_RF = (whole_rows(x) for x in (grad_RF, gate_RF, inner_RF))
    num_rows, width = gate_RF.shape
    out_R2F = torch.empty((num_rows, 2 * width), dtype=gate_RF.dtype, device=gate_RF.device)
    if num_rows:
        numbers = grad_RF.stride(0), gate_RF.stride(0), inner_RF.stride(0), width
        block = block_of(width)
        launch(
            _blocks,
            (num_rows, triton.cdiv(width, block), 1),
            (grad_RF, gate_RF, inner_RF, out_R2F),
            numbers,
            {"BLOCK": block},
            variant=numbers,
        )
    return out_R2F


@triton.jit
def _blocks(grad, gate, inner, out, grad_stride, gate_stride, inner_stride, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_in = column < width
    above = tl.load(grad + row * grad_stride + column, mask=is_in, other=0.0).to(tl.float32)
    g = tl.load(gate + row * gate_stride + column, mask=is_in, other=0.0).to(tl.float32)
    x = tl.load(inner + row * inner_stride + column, mask=is_in, other=0.0).to(tl.float32)
    passed = tl.sigmoid(g)
    by_gate, by_inner = above * x * passed * (1 + g * (1 - passed)), above * g * passed
    out += row * 2 * width + column
    tl.store(out, by_gate.to(out.dtype.element_ty), mask=is_in)
    tl.store(out + width, by_inner.to(out.dtype.element_ty), mask=is_in)
