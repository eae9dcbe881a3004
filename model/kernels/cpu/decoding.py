"""What a search uses on a CPU: weights repacked into the layout of its matmul kernels.

torch uses MKL for fp32 matmuls. On non-Intel processors MKL uses AVX2 only, and oneDNN was measured to be twice as
fast; on Intel processors MKL is faster and is kept. bf16 always uses oneDNN, by the operator that torch.compile calls.
"""

import contextlib
import platform
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from model.attention import MultiHeadAttention
from model.loss import OutputLayer

BF16_ROW_MULTIPLE = 32
"""bf16 rows are padded to a multiple of this: two AMX tiles take hardly longer than one row."""
SIZES_PER_DOUBLING = 16
"""Of many rows, the numbers between two powers of two to which they are padded."""

Layer = nn.Linear | OutputLayer
_LAYERS = (nn.Linear, OutputLayer)
"""Exactly these classes: a subclass may compute something else."""
LinearFunction = Callable[[Tensor], Tensor]


@contextlib.contextmanager
def packed_weights(models: Sequence[nn.Module]) -> Iterator[None]:
    """A context in which the models' layers use packed copies of their weights. The weights must not change inside it.

    Without packing, oneDNN repacks the weights for every matmul. In fp32, where oneDNN is preferred, matmuls of any
    size use it here, summed in another order; MKL gets transposed weights. In bf16 results are the same except for a
    rare last bit, and rows are padded to a few sizes: building kernels for each number of remaining sentences would
    take longer than the matmuls. The projections of attention from the same input are one matmul. Each copy is made at
    its first use.
    """
    modules = [module for model in models for module in model.modules()]
    functions: list[tuple[nn.Module, str, Any]] = [
        (layer, "forward", _packed_linear(layer)) for layer in modules if isinstance(layer, Layer) and _can_pack(layer)
    ]
    functions += [
        (attention, "project", _projection(attention))
        for attention in modules
        if type(attention) is MultiHeadAttention
        and all(_can_pack(layer) for layer in (attention.query, attention.key, attention.value))
    ]
    for module, name, function in functions:
        vars(module)[name] = function
    try:
        yield
    finally:
        for module, name, _ in functions:
            vars(module).pop(name, None)


def _can_pack(layer: Layer) -> bool:
    """Whether the layer is one of `_LAYERS` and there is a packed layout for its weight's dtype."""
    weight = layer.weight
    if type(layer) not in _LAYERS:
        return False
    by_mkl = weight.dtype == torch.float32 and torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]
    return by_mkl or prefers_onednn(weight.dtype)


def _projection(attention: MultiHeadAttention) -> Callable[[Tensor, Tensor], tuple[Tensor, ...]]:
    """`MultiHeadAttention.project` with packed weights."""
    query, key, value = attention.query, attention.key, attention.value
    widths = [len(layer.weight) for layer in (query, key, value)]
    all_three, of_memory = _packed_linear(query, key, value), _packed_linear(key, value)

    def project(queries_BLD: Tensor, memory_BSD: Tensor) -> tuple[Tensor, ...]:
        if queries_BLD is memory_BSD:
            return torch.split(all_three(memory_BSD), widths, -1)
        if not memory_BSD.shape[1]:
            return type(attention).project(attention, queries_BLD, memory_BSD)
        return query(queries_BLD), *torch.split(of_memory(memory_BSD), widths[1:], -1)

    return project


def _packed_linear(*layers: Layer) -> LinearFunction:
    """A function from an input to the concatenated outputs of the layers; packs their weights at its first call."""
    packed: list[LinearFunction] = []

    def linear(x: Tensor) -> Tensor:
        if not packed:
            packed.append(_pack(*layers))
        return packed[0](x)

    return linear


@torch.inference_mode()
def _pack(*layers: Layer) -> LinearFunction:
    """Packs a copy of the weights; returns the function of `_packed_linear`."""
    weights = [layer.weight.detach() for layer in layers]
    biases = [layer.bias.detach() for layer in layers if layer.bias is not None]
    assert len(biases) in (0, len(layers)), "biases in all or none"
    weight = weights[0] if len(weights) == 1 else torch.cat(weights)
    bias = torch.cat(biases) if biases else None
    if not prefers_onednn(weight.dtype):
        transposed = weight.T.contiguous().T
        return lambda x: F.linear(x, transposed, bias)
    multiply = torch.ops.mkldnn._linear_pointwise
    packed_weight = torch.ops.mkldnn._reorder_linear_weight(weight)

    def forward(x: Tensor) -> Tensor:
        if x.dtype == torch.float32:
            out: Tensor = multiply(x, packed_weight, bias, "none", [], "")
            return out
        x_RI = x.flatten(0, -2)
        num_rows = x_RI.shape[0]
        padded_RI = F.pad(x_RI, (0, 0, 0, -num_rows % _row_multiple(num_rows)))
        out_RO: Tensor = multiply(padded_RI, packed_weight, bias, "none", [], "")
        return out_RO[:num_rows].view(*x.shape[:-1], -1)

    return forward


def _row_multiple(num_rows: int) -> int:
    return max(BF16_ROW_MULTIPLE, (1 << num_rows.bit_length()) // (2 * SIZES_PER_DOUBLING))


def prefers_onednn(dtype: torch.dtype) -> bool:
    """Whether oneDNN is the fastest, or the only, way to multiply matrices of this type on this processor."""
    return _FP32_PREFERS_ONEDNN if dtype == torch.float32 else dtype == torch.bfloat16 and _ONEDNN_HAS_BF16


def bf16_is_faster() -> bool:
    """Whether matmuls are faster in bf16 than in fp32: with AMX, or with AVX512-BF16 on a non-Intel processor.

    With AVX512-BF16, bf16 matmuls were measured to be twice as fast as fp32 on AMD Zen 5, but half as fast on an Intel
    Xeon whose virtual machine hid AMX. With neither they are several times slower.
    """
    has = torch.cpu.get_capabilities()
    return bool(has.get("amx_bf16") or (has.get("avx512_bf16") and not _is_intel()))


def _is_intel() -> bool:
    try:
        return "GenuineIntel" in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "Intel" in platform.processor()


_HAS_ONEDNN = hasattr(torch.ops.mkldnn, "_linear_pointwise") and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
_ONEDNN_HAS_BF16 = _HAS_ONEDNN and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
_FP32_PREFERS_ONEDNN = _HAS_ONEDNN and torch.backends.mkl.is_available() and not _is_intel()  # type: ignore[no-untyped-call]
