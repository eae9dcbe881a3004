"""Linear layers, whose fp32 products go to oneDNN on a CPU that is not Intel's.

torch multiplies fp32 matrices by MKL on CPUs, which keeps to AVX2 on processors that are not Intel's: there oneDNN was
seen to be twice as fast. On Intel's own MKL is the faster one, and stays. The products are fp32 as before, summed in
another order. bf16 goes to oneDNN anyway. The operator is the one that torch's own compiler uses; where it is missing
all is as in `nn.Linear`. oneDNN makes a kernel for every shape that it has not seen lately, so small products stay
where they are.
"""

import contextlib
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

LEAST_MULTIPLICATIONS = 1 << 24
"""Of numbers, in a product that goes to oneDNN: below, a new kernel takes longer than some products by it save."""


class Linear(nn.Linear):
    """`nn.Linear`, forward and backward by `multiply`."""

    def forward(self, x: Tensor) -> Tensor:
        """(..., I) to (..., O)."""
        if not _goes_to_onednn(x, self.weight):
            return F.linear(x, self.weight, self.bias)
        out: Tensor = _Linear.apply(x, self.weight, self.bias)  # type: ignore[no-untyped-call]
        return out


def multiply(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x weight^T + bias, in (..., O), of x (..., I) and weight (O, I) in any strides. Gradients are not recorded."""
    with torch.no_grad():
        if not _goes_to_onednn(x, weight):
            return F.linear(x, weight, bias)
        out: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
        return out


def has_onednn() -> bool:
    """Whether torch was built with oneDNN and the operators that its compiler calls."""
    return hasattr(torch.ops.mkldnn, "_linear_pointwise") and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]


def _is_intel() -> bool:
    """Whether the processor is Intel's."""
    try:
        return "GenuineIntel" in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "Intel" in platform.processor()


_onednn_is_wanted = has_onednn() and torch.backends.mkl.is_available() and not _is_intel()  # type: ignore[no-untyped-call]


@contextlib.contextmanager
def without_onednn() -> Iterator[None]:
    """Within it, multiply as torch does.

    For where memory may run out: oneDNN then fails at the same product for good, or ends the process.
    """
    global _onednn_is_wanted
    before, _onednn_is_wanted = _onednn_is_wanted, False
    try:
        yield
    finally:
        _onednn_is_wanted = before


def _goes_to_onednn(x: Tensor, weight: Tensor) -> bool:
    if not _onednn_is_wanted or x.device.type != "cpu" or x.dtype != torch.float32 or torch.compiler.is_compiling():
        return False
    return x.numel() * weight.shape[0] >= LEAST_MULTIPLICATIONS


class _Linear(torch.autograd.Function):
    """x weight^T + bias."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return multiply(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        grad_NO, x_NI = grads[0].flatten(0, -2), x.flatten(0, -2)
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        grad_x = multiply(grads[0], weight.T) if needs_x else None
        grad_weight = None
        if needs_weight:  # faster with the larger side as the second
            is_wide = weight.shape[0] > weight.shape[1]
            grad_weight = multiply(x_NI.T, grad_NO.T).T if is_wide else multiply(grad_NO.T, x_NI.T)
        return grad_x, grad_weight, grad_NO.sum(0) if needs_bias else None
