"""What a search uses on a CPU: weights repacked into the layout of its matmul kernels, and a quick argmax."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from model.attention import MultiHeadAttention
from model.kernels.cpu.layers import CpuAttention
from model.kernels.cpu.linear import CpuLinear, prefers_onednn, rounded_rows
from model.kernels.cpu.loss import CpuOutputLayer
from model.loss import OutputLayer

BF16_ROW_MULTIPLE = 32
"""bf16 rows are padded to a multiple of this: two AMX tiles take hardly longer than one row."""

Layer = nn.Linear | OutputLayer
_LAYERS = (nn.Linear, CpuLinear, OutputLayer, CpuOutputLayer)
_ATTENTIONS = (MultiHeadAttention, CpuAttention)
"""Exactly these classes: a subclass may compute something else."""
LinearFunction = Callable[[Tensor], Tensor]


@contextlib.contextmanager
def packed_weights(models: Sequence[nn.Module]) -> Iterator[None]:
    """A context in which the models' layers use packed copies of their weights. The weights must not change inside it.

    Without packing, oneDNN repacks the weights for every matmul. In fp32, where oneDNN is preferred (see
    `model.kernels.cpu.linear`), matmuls of any size use it here, summed in another order; MKL gets transposed weights.
    In bf16 results are the same except for a rare last bit, and rows are padded to a few sizes: building kernels for
    each number of remaining sentences would take longer than the matmuls. The projections of attention from the same
    input are one matmul. Each copy is made at its first use.
    """
    modules = [module for model in models for module in model.modules()]
    functions: list[tuple[nn.Module, str, Any]] = [
        (layer, "forward", _packed_linear(layer)) for layer in modules if isinstance(layer, Layer) and _can_pack(layer)
    ]
    functions += [
        (attention, "project", _projection(attention))
        for attention in modules
        if isinstance(attention, MultiHeadAttention)
        and type(attention) in _ATTENTIONS
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
    assert len(biases) in (0, len(layers)), "biases in all of them or none"
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
        padded_RI = F.pad(x_RI, (0, 0, 0, rounded_rows(num_rows, multiple=BF16_ROW_MULTIPLE) - num_rows))
        out_RO: Tensor = multiply(padded_RI, packed_weight, bias, "none", [], "")
        return out_RO[:num_rows].view(*x.shape[:-1], -1)

    return forward


STEPS_BETWEEN_SYNCS = 1
"""Finished sentences are noticed at every step: reading from the same memory costs nothing."""
GROUP = 128
"""Number of neighbouring elements whose maximum is computed first."""


def argmax(x_NV: Tensor) -> Tensor:
    """`model.kernels.argmax`, (N): the maximum of each group, then the argmax over groups.

    A CPU computes a maximum ten times as fast as an argmax.
    """
    in_groups = x_NV.shape[1] // GROUP * GROUP
    if in_groups == 0:
        return x_NV.argmax(-1)
    groups_NgG = x_NV[:, :in_groups].view(len(x_NV), -1, GROUP)
    best_Ng = groups_NgG.amax(-1)
    group_N1 = best_Ng.argmax(-1, keepdim=True)
    group_NG = groups_NgG.take_along_dim(group_N1[..., None], 1)[:, 0]
    place_N: Tensor = group_N1[:, 0] * GROUP + group_NG.argmax(-1)
    if in_groups == x_NV.shape[1]:
        return place_N
    rest_N, rest_place_N = x_NV[:, in_groups:].max(-1)  # the last few belong to no group
    return torch.where(rest_N > best_Ng.amax(-1), in_groups + rest_place_N, place_N)
