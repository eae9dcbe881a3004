"""Several linear layers of the same input as one matmul.

Each weight remains its own parameter, so checkpoints and the optimizer are not affected.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from model.kernels.cuda.linear import has_hooks


@dataclass(kw_only=True, slots=True, frozen=True)
class Joined:
    """Layers of the same input, with their weights and biases concatenated."""

    layers: Sequence[nn.Linear]
    weight: Tensor
    bias: Tensor | None

    def __call__(self, x: Tensor) -> tuple[Tensor, ...]:
        """The output (..., O) of each layer for x (..., I)."""
        weights, biases = _parameters(self.layers)
        out: tuple[Tensor, ...] = _JoinedLinear.apply(  # type: ignore[no-untyped-call]
            x, self.weight, self.bias, len(weights), *weights, *biases
        )
        return out


def can_join(layers: Sequence[nn.Linear]) -> bool:
    """Whether the layers agree in input width, bias and dtype and have no hooks, with which ZeRO-3 gathers weights."""
    alike = {(layer.in_features, layer.bias is None, layer.weight.dtype) for layer in layers}
    return len(alike) == 1 and not any(map(has_hooks, layers))


def join(groups: Mapping[str, Sequence[nn.Linear]]) -> dict[str, Joined]:
    """Join the layers of each group, with one copy of all weights and one of all biases; see `can_join`."""
    weights, biases = _parameters([layer for layers in groups.values() for layer in layers])
    with torch.no_grad():
        weight, bias = torch.cat(weights), torch.cat(biases) if biases else None
    joined, begin = {}, 0
    for name, layers in groups.items():
        end = begin + sum(len(layer.weight) for layer in layers)
        joined[name] = Joined(layers=layers, weight=weight[begin:end], bias=None if bias is None else bias[begin:end])
        begin = end
    return joined


def joined_linear(x: Tensor, layers: Sequence[nn.Linear]) -> tuple[Tensor, ...]:
    """The output (..., O) of each layer for the same x (..., I), by one matmul in training.

    Without gradients, as in a search, the layers run one by one: its few rows are not worth copying the weights.
    """
    if torch.is_grad_enabled() and can_join(layers):
        return join({"": layers})[""](x)
    return apart(layers, x)


def apart(layers: Sequence[nn.Linear], x: Tensor) -> tuple[Tensor, ...]:
    """The output (..., O) of each layer for the same x (..., I), by a matmul each."""
    return tuple(layer(x) for layer in layers)


def _parameters(layers: Sequence[nn.Linear]) -> tuple[list[Tensor], list[Tensor]]:
    return [layer.weight for layer in layers], [layer.bias for layer in layers if layer.bias is not None]


class _JoinedLinear(torch.autograd.Function):
    """x weight^T + bias for concatenated weights; the gradients are split again."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, count: int, *parameters: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.save_for_backward(x, weight)
        ctx.widths, ctx.has_bias = [len(w) for w in parameters[:count]], bias is not None
        return torch.split(F.linear(x, weight, bias), ctx.widths, -1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        grad_RO = torch.cat([grad.flatten(0, -2) for grad in grads], 1)
        x_RI = x.flatten(0, -2)
        grad_x = torch.mm(grad_RO, weight).view(x.shape) if ctx.needs_input_grad[0] else None
        grad_weights = torch.split(torch.mm(grad_RO.T, x_RI), ctx.widths)
        grad_biases = torch.split(grad_RO.sum(0), ctx.widths) if ctx.has_bias else ()
        return grad_x, None, None, None, *grad_weights, *grad_biases
