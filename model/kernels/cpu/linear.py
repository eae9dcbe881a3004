"""Linear layers whose matmuls use oneDNN where it is faster than MKL.

On CPUs torch uses MKL for fp32 matmuls. On non-Intel processors MKL uses AVX2 only, and oneDNN was measured to be twice
as fast; on Intel processors MKL is faster and is kept. Results are still fp32, summed in another order. bf16 always
uses oneDNN. The operator is the one that torch.compile calls; without it everything works as in `nn.Linear`.

oneDNN builds a kernel for every shape that is not in its cache. With AMX a build takes as long as 3 to 20 matmuls (2 to
9 ms for 2,000 rows, 30 ms for the output layer); with AVX-512 it took 0.3 to 3 ms. Batches come in many shapes. So
small matmuls do not use oneDNN, and large ones are padded with zero rows to a few sizes (`rounded_rows`).

Large matmuls that follow each other or share an input are one autograd function (`joined_linear`,
`model.kernels.cpu.layers`): rows are copied once, and fewer steps run on a single thread.
"""

import math
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
MIN_ONEDNN_MACS = 1 << 24
"""Multiply-adds of a matmul from which oneDNN is used: below this, building its kernel costs more than it saves."""

SIZES_PER_DOUBLING = 16 if torch.cpu.get_capabilities().get("amx_tile") else 32
"""Row counts between two powers of two to which large matmuls are padded: more cost more kernels, fewer more zeros."""


class CpuLinear(nn.Linear):
    """`nn.Linear`, whose large matmuls use oneDNN on padded rows, forward and backward."""

    def forward(self, x: Tensor) -> Tensor:
        """(..., I) to (..., O)."""
        if not uses_onednn(x, self.weight):
            return F.linear(x, self.weight, self.bias)
        out: Tensor = _Linear.apply(x, self.weight, self.bias)  # type: ignore[no-untyped-call]
        return out


def multiply(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x weight^T + bias (..., O) for x (..., I) and weight (O, I) with any strides; not recorded by autograd."""
    with torch.no_grad():
        if x.dtype != torch.float32 or not uses_onednn(x, weight):
            return F.linear(x, weight, bias)
        out: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
        return out


def weight_gradient(grad_RO: Tensor, x_RI: Tensor) -> Tensor:
    """The gradient of a weight, grad^T x (O, I), in whichever layout is faster; not recorded by autograd."""
    if _is_faster_transposed(grad_RO, x_RI):
        return multiply(x_RI.T, grad_RO.T).T
    return multiply(grad_RO.T, x_RI.T)


def add_weight_gradient(total_OI: Tensor | None, grad_RO: Tensor, x_RI: Tensor) -> Tensor:
    """Add `weight_gradient` to the total in fp32, in place; returns the total. None stands for zeros."""
    if total_OI is None:
        return weight_gradient(grad_RO, x_RI).float()
    if grad_RO.dtype == torch.float32 and not uses_onednn(grad_RO.T, x_RI.T):
        return total_OI.addmm_(grad_RO.T, x_RI)
    return total_OI.add_(weight_gradient(grad_RO, x_RI))


def _is_faster_transposed(grad_RO: Tensor, x_RI: Tensor) -> bool:
    """In fp32 oneDNN is faster when the second operand is the larger one."""
    is_wide = grad_RO.shape[1] > x_RI.shape[1]
    return grad_RO.dtype == torch.float32 and is_wide and uses_onednn(x_RI.T, grad_RO.T)


def has_onednn() -> bool:
    """Whether torch was built with oneDNN and has the operators that torch.compile uses for it."""
    return hasattr(torch.ops.mkldnn, "_linear_pointwise") and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]


def is_intel() -> bool:
    """Whether the processor is made by Intel."""
    try:
        return "GenuineIntel" in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "Intel" in platform.processor()


def bf16_is_faster() -> bool:
    """Whether matmuls are faster in bf16 than in fp32: with AMX, or with AVX512-BF16 on a non-Intel processor.

    With AVX512-BF16, bf16 matmuls were measured to be twice as fast as fp32 on AMD Zen 5, but half as fast on an Intel
    Xeon whose virtual machine hid AMX. With neither they are several times slower.
    """
    has = torch.cpu.get_capabilities()
    return bool(has.get("amx_bf16") or (has.get("avx512_bf16") and not is_intel()))


_onednn_has_bf16 = has_onednn() and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
_fp32_prefers_onednn = has_onednn() and torch.backends.mkl.is_available() and not is_intel()  # type: ignore[no-untyped-call]


def prefers_onednn(dtype: torch.dtype) -> bool:
    """Whether oneDNN is the fastest, or the only, way to multiply matrices of this type on this processor."""
    return _fp32_prefers_onednn if dtype == torch.float32 else dtype == torch.bfloat16 and _onednn_has_bf16


def uses_onednn(x: Tensor, weight: Tensor) -> bool:
    """Whether the matmul of x (..., I) and weight^T uses oneDNN: it is preferred and the matmul is large enough."""
    if torch.compiler.is_compiling():
        return False
    return prefers_onednn(x.dtype) and x.numel() * weight.shape[0] >= MIN_ONEDNN_MACS


def can_join(x: Tensor, *layers: nn.Linear) -> bool:
    """Whether these layers of x can be one autograd function, without calling each: large matmuls in training.

    Layers with hooks must be called, because the hooks run then: those of ZeRO-3 gather the weights.
    """
    if torch.compiler.is_compiling() or not torch.is_grad_enabled():
        return False
    if x.dtype not in (torch.float32, torch.bfloat16) or any(layer.weight.dtype != x.dtype for layer in layers):
        return False
    if any(getattr(layer, hooks) for layer in layers for hooks in _HOOKS):
        return False
    return x.numel() * layers[0].weight.shape[0] >= MIN_ONEDNN_MACS


def joined_linear(x: Tensor, layers: Sequence[nn.Linear]) -> tuple[Tensor, ...]:
    """The output (..., O) of each layer for the same x (..., I); one matmul for all of them if they are large."""
    if len({layer.bias is None for layer in layers}) > 1 or not can_join(x, *layers):
        return tuple(layer(x) for layer in layers)
    weights, biases = [layer.weight for layer in layers], [layer.bias for layer in layers]
    out: tuple[Tensor, ...] = _JoinedLinear.apply(x, len(layers), *weights, *biases)  # type: ignore[no-untyped-call]
    return out


def rounded_rows(num_rows: int, *, up: bool = True, multiple: int = 1) -> int:
    """Round up, or down, to one of `SIZES_PER_DOUBLING` sizes between two powers of two.

    The result differs by at most a fraction of 1 / SIZES_PER_DOUBLING, unless `multiple`, a power of two that it must
    be divisible by, is larger.
    """
    step = max(multiple, (1 << num_rows.bit_length()) // (2 * SIZES_PER_DOUBLING))
    return (-(-num_rows // step) if up else num_rows // step) * step


def as_rows(x: Tensor, weight: Tensor) -> Tensor:
    """(..., I) as (R, I) for a matmul with weight (O, I), padded with zero rows if it uses oneDNN."""
    num_rows = x[..., 0].numel()
    return with_rows(x, rounded_rows(num_rows) if uses_onednn(x, weight) else num_rows)


def with_rows(x: Tensor, num_rows: int) -> Tensor:
    """(..., I) as (num_rows, I), padded with zero rows."""
    known = x[..., 0].numel()
    if known == num_rows:
        return x.flatten(0, -2)
    out_RI = x.new_empty(num_rows, x.shape[-1])
    out_RI[:known].view(x.shape).copy_(x)
    out_RI[known:].zero_()
    return out_RI


class _Linear(torch.autograd.Function):
    """x weight^T + bias."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        x_RI = as_rows(x, weight)
        ctx.save_for_backward(x_RI, weight)
        shape = (*x.shape[:-1], weight.shape[0])
        return multiply(x_RI, weight, bias)[: math.prod(shape[:-1])].view(shape)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x_RI, weight = ctx.saved_tensors
        grad_RO = with_rows(grads[0], len(x_RI))
        num_rows = grads[0][..., 0].numel()
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        grad_x = None
        if needs_x:
            grad_x = multiply(grad_RO, weight.T)[:num_rows].view(*grads[0].shape[:-1], weight.shape[1])
        grad_weight = weight_gradient(grad_RO, x_RI) if needs_weight else None
        return grad_x, grad_weight, grad_RO[:num_rows].sum(0) if needs_bias else None


class _JoinedLinear(torch.autograd.Function):
    """x weight^T + bias for several weights, concatenated into one."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, count: int, *parameters: Tensor) -> tuple[Tensor, ...]:
        weights, biases = parameters[:count], parameters[count:]
        weight, bias = torch.cat(weights), None if biases[0] is None else torch.cat(biases)
        x_RI = as_rows(x, weight)
        ctx.save_for_backward(x_RI, weight)
        ctx.widths = [len(w) for w in weights]
        out_RO = multiply(x_RI, weight, bias)[: x[..., 0].numel()]
        return tuple(part.view(*x.shape[:-1], -1) for part in torch.split(out_RO, ctx.widths, 1))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x_RI, weight = ctx.saved_tensors
        shape = grads[0].shape[:-1]
        num_rows = math.prod(shape)
        grad_RO = x_RI.new_empty(len(x_RI), len(weight))
        for part, grad in zip(torch.split(grad_RO, ctx.widths, 1), grads, strict=True):
            part[:num_rows].view(grad.shape).copy_(grad)
        grad_RO[num_rows:].zero_()
        needs_x, _, *needs = ctx.needs_input_grad
        needs_weight, needs_bias = (any(needs[i * len(grads) : (i + 1) * len(grads)]) for i in range(2))
        none = [None] * len(grads)
        return (
            multiply(grad_RO, weight.T)[:num_rows].view(*shape, -1) if needs_x else None,
            None,
            *(torch.split(weight_gradient(grad_RO, x_RI), ctx.widths) if needs_weight else none),
            *(torch.split(grad_RO[:num_rows].sum(0), ctx.widths) if needs_bias else none),
        )
