"""Linear layers, whose fp32 products go to oneDNN on a CPU that is not Intel's.

torch multiplies fp32 matrices by MKL on CPUs, which keeps to AVX2 on processors that are not Intel's: there oneDNN was
seen to be twice as fast. On Intel's own MKL is the faster one, and stays. The products are fp32 as before, summed in
another order. bf16 goes to oneDNN anyway. The operator is the one that torch's own compiler uses; where it is missing
all is as in `nn.Linear`.

oneDNN makes a kernel for every shape that it has not seen lately. For AMX that takes as long as 3 to 20 of these
products: 2 to 9 ms for 2,000 rows, 30 for the output layer; elsewhere 0.3 to 3 ms were seen, by AVX-512. Batches have
as many shapes as there are products of sentences and lengths. So small products stay where they are, and large ones get
rows of zeros up to `rounded_rows`.

Large products that belong together are formed in one function (`together`, `model.kernels.cpu.feed_forward`): rows are
copied once, and less waits for a single thread.
"""

import contextlib
import math
import platform
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
LEAST_MULTIPLICATIONS = 1 << 24
"""Of numbers, in a large product: below, a new kernel of oneDNN takes longer than some products by it save."""

ROW_COUNTS = 16 if torch.cpu.get_capabilities().get("amx_tile") else 32
"""Numbers of rows between two powers of two that large products have: more kernels of oneDNN, or more rows of zeros."""


class CpuLinear(nn.Linear):
    """`nn.Linear`; what goes to oneDNN, forward and backward, by `multiply` and with rounded rows."""

    def forward(self, x: Tensor) -> Tensor:
        """(..., I) to (..., O)."""
        if not goes_to_onednn(x, self.weight):
            return F.linear(x, self.weight, self.bias)
        out: Tensor = _Linear.apply(x, self.weight, self.bias)  # type: ignore[no-untyped-call]
        return out


def multiply(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x weight^T + bias, in (..., O), of x (..., I) and weight (O, I) in any strides. Gradients are not recorded."""
    with torch.no_grad():
        if x.dtype != torch.float32 or not goes_to_onednn(x, weight):
            return F.linear(x, weight, bias)
        out: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
        return out


def weight_gradient(grad_RO: Tensor, x_RI: Tensor) -> Tensor:
    """grad^T x, (O, I): the gradient of a weight, in the layout that is had sooner. Gradients are not recorded."""
    if _is_sooner_transposed(grad_RO, x_RI):
        return multiply(x_RI.T, grad_RO.T).T
    return multiply(grad_RO.T, x_RI.T)


def add_weight_gradient(total_OI: Tensor | None, grad_RO: Tensor, x_RI: Tensor) -> Tensor:
    """The total, which changes, with `weight_gradient` added to it in fp32. None stands for zeros."""
    if total_OI is None:
        return weight_gradient(grad_RO, x_RI).float()
    if grad_RO.dtype == torch.float32 and not goes_to_onednn(grad_RO.T, x_RI.T):
        return total_OI.addmm_(grad_RO.T, x_RI)
    return total_OI.add_(weight_gradient(grad_RO, x_RI))


def _is_sooner_transposed(grad_RO: Tensor, x_RI: Tensor) -> bool:
    """In fp32 oneDNN is faster with the larger side as the second."""
    is_wide = grad_RO.shape[1] > x_RI.shape[1]
    return grad_RO.dtype == torch.float32 and is_wide and goes_to_onednn(x_RI.T, grad_RO.T)


def has_onednn() -> bool:
    """Whether torch was built with oneDNN and the operators that its compiler calls."""
    return hasattr(torch.ops.mkldnn, "_linear_pointwise") and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]


def is_intel() -> bool:
    """Whether the processor is Intel's."""
    try:
        return "GenuineIntel" in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "Intel" in platform.processor()


def gains_by_bf16() -> bool:
    """Whether the CPU multiplies bf16 faster than fp32: by AMX, or by AVX512-BF16 where it is not Intel's.

    By AVX512-BF16 products were seen to be twice as fast as in fp32 on AMD's Zen 5, and half as fast on an Intel Xeon
    whose AMX was hidden from its virtual machine. Without either they are several times slower.
    """
    has = torch.cpu.get_capabilities()
    return bool(has.get("amx_bf16") or (has.get("avx512_bf16") and not is_intel()))


def _has_bf16() -> bool:
    """Whether torch multiplies bf16 matrices by oneDNN on this processor."""
    return has_onednn() and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


_onednn_has_bf16 = _has_bf16()
_onednn_is_wanted = has_onednn() and torch.backends.mkl.is_available() and not is_intel()  # type: ignore[no-untyped-call]


@contextlib.contextmanager
def without_onednn() -> Iterator[None]:
    """Within it, multiply fp32 as torch does.

    For where memory may run out: oneDNN then fails at the same product for good, or ends the process.
    """
    global _onednn_is_wanted
    before, _onednn_is_wanted = _onednn_is_wanted, False
    try:
        yield
    finally:
        _onednn_is_wanted = before


def wants_onednn(dtype: torch.dtype) -> bool:
    """Whether matrices of this type are multiplied faster by oneDNN on this processor, or by nothing else."""
    return _onednn_is_wanted if dtype == torch.float32 else dtype == torch.bfloat16 and _onednn_has_bf16


def goes_to_onednn(x: Tensor, weight: Tensor) -> bool:
    """Whether x (..., I) times weight^T goes to oneDNN, and is large enough to."""
    if torch.compiler.is_compiling():
        return False
    return wants_onednn(x.dtype) and x.numel() * weight.shape[0] >= LEAST_MULTIPLICATIONS


def are_joined(x: Tensor, *layers: nn.Linear) -> bool:
    """Whether the products of these layers are formed outside of them: large ones of x, for gradients.

    A layer with hooks is called, since they wait for that: ZeRO-3's gather its weights.
    """
    if torch.compiler.is_compiling() or not torch.is_grad_enabled():
        return False
    if x.dtype not in (torch.float32, torch.bfloat16) or any(layer.weight.dtype != x.dtype for layer in layers):
        return False
    if any(getattr(layer, hooks) for layer in layers for hooks in _HOOKS):
        return False
    return x.numel() * layers[0].weight.shape[0] >= LEAST_MULTIPLICATIONS


def together(x: Tensor, layers: Sequence[nn.Linear]) -> tuple[Tensor, ...]:
    """What each of several layers makes of the same x (..., I), (..., O) each; where products are large, by one."""
    if len({layer.bias is None for layer in layers}) > 1 or not are_joined(x, *layers):
        return tuple(layer(x) for layer in layers)
    weights, biases = [layer.weight for layer in layers], [layer.bias for layer in layers]
    out: tuple[Tensor, ...] = _Together.apply(x, len(layers), *weights, *biases)  # type: ignore[no-untyped-call]
    return out


def rounded_rows(num_rows: int, *, up: bool = True, least_step: int = 1) -> int:
    """The next, or last, of `ROW_COUNTS` numbers between two powers of two: at most a fraction 1 / ROW_COUNTS away.

    Of these the multiples of `least_step`, a power of two.
    """
    step = max(least_step, (1 << num_rows.bit_length()) // (2 * ROW_COUNTS))
    return (-(-num_rows // step) if up else num_rows // step) * step


def as_rows(x: Tensor, weight: Tensor) -> Tensor:
    """(..., I) as (R, I), for a product with the weight (O, I): with rows of zeros at the end if it goes to oneDNN."""
    num_rows = x[..., 0].numel()
    return with_rows(x, rounded_rows(num_rows) if goes_to_onednn(x, weight) else num_rows)


def with_rows(x: Tensor, num_rows: int) -> Tensor:
    """(..., I) as (num_rows, I), the last ones zeros."""
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


class _Together(torch.autograd.Function):
    """x weight^T + bias of several weights, each a part of one."""

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
