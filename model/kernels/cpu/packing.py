"""Layers whose weights are laid out for the kernels that multiply by them, while a model decodes on a CPU."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from model.attention import MultiHeadAttention
from model.kernels.cpu.attention import CpuAttention
from model.kernels.cpu.linear import CpuLinear, rounded_rows, wants_onednn
from model.kernels.cpu.loss import CpuOutputLayer
from model.loss import OutputLayer

LEAST_STEP = 32
"""Rows in bf16 are a multiple of it: two tiles of AMX, which take hardly longer than one row."""

Layer = nn.Linear | OutputLayer
_LAYERS = (nn.Linear, CpuLinear, OutputLayer, CpuOutputLayer)
_ATTENTIONS = (MultiHeadAttention, CpuAttention)
"""These alone: what derives from them may compute otherwise."""
Product = Callable[[Tensor], Tensor]


@contextlib.contextmanager
def packed(models: Sequence[nn.Module]) -> Iterator[None]:
    """Within it, the models' layers multiply by packed copies of their weights, which must not change.

    oneDNN lays the weights out anew for every product unless they are packed. In fp32 this also takes products of any
    size to it, summed in another order, where it is quicker (see `model.kernels.cpu.linear`); MKL gets them transposed.
    In bf16 the bits stay the same but for a rare last one, and rows of zeros make up the next of few numbers: kernels
    for as many rows as sentences are left take longer than the products themselves. What attention projects from one
    input is one product. Each copy is made when it is first wanted.
    """
    modules = [module for model in models for module in model.modules()]
    functions: list[tuple[nn.Module, str, Any]] = [
        (layer, "forward", _product(layer)) for layer in modules if isinstance(layer, Layer) and _is_packed(layer)
    ]
    functions += [
        (attention, "project", _projection(attention))
        for attention in modules
        if isinstance(attention, MultiHeadAttention)
        and type(attention) in _ATTENTIONS
        and all(_is_packed(layer) for layer in (attention.query, attention.key, attention.value))
    ]
    for module, name, function in functions:
        vars(module)[name] = function
    try:
        yield
    finally:
        for module, name, _ in functions:
            vars(module).pop(name, None)


def _is_packed(layer: Layer) -> bool:
    """Whether it is a layer of ours, and its weight in a format for which there is such a layout."""
    weight = layer.weight
    if type(layer) not in _LAYERS:
        return False
    by_mkl = weight.dtype == torch.float32 and torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]
    return by_mkl or wants_onednn(weight.dtype)


def _projection(attention: MultiHeadAttention) -> Callable[[Tensor, Tensor], tuple[Tensor, ...]]:
    """What `MultiHeadAttention.project` does."""
    query, key, value = attention.query, attention.key, attention.value
    widths = [len(layer.weight) for layer in (query, key, value)]
    all_three, of_memory = _product(query, key, value), _product(key, value)

    def project(queries_BLD: Tensor, memory_BSD: Tensor) -> tuple[Tensor, ...]:
        if queries_BLD is memory_BSD:
            return torch.split(all_three(memory_BSD), widths, -1)
        return query(queries_BLD), *torch.split(of_memory(memory_BSD), widths[1:], -1)

    return project


def _product(*layers: Layer) -> Product:
    """What the layers make of one input, beside one another, as their `forward` does."""
    made: list[Product] = []

    def product(x: Tensor) -> Tensor:
        if not made:
            made.append(_laid_out(*layers))
        return made[0](x)

    return product


@torch.inference_mode()
def _laid_out(*layers: Layer) -> Product:
    """The same, by a copy of the weights."""
    weights = [layer.weight.detach() for layer in layers]
    biases = [layer.bias.detach() for layer in layers if layer.bias is not None]
    assert len(biases) in (0, len(layers)), "biases in all of them or none"
    weight = weights[0] if len(weights) == 1 else torch.cat(weights)
    bias = torch.cat(biases) if biases else None
    if not wants_onednn(weight.dtype):
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
        padded_RI = F.pad(x_RI, (0, 0, 0, rounded_rows(num_rows, least_step=LEAST_STEP) - num_rows))
        out_RO: Tensor = multiply(padded_RI, packed_weight, bias, "none", [], "")
        return out_RO[:num_rows].view(*x.shape[:-1], -1)

    return forward
