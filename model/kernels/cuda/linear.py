"""Linear layers of the same input as one matmul, and the backward pass of ReLU.

Each weight remains its own parameter, so checkpoints and the optimizer are not affected.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from model.kernels.cuda.operators import define, direct

HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


def has_hooks(module: nn.Module) -> bool:
    """Whether calling the module runs hooks, as with ZeRO-3, which gathers parameters in them."""
    return any(getattr(module, hooks) for hooks in HOOKS)


def _plain_relu_backward(grad_RO: Tensor, out_RO: Tensor) -> tuple[Tensor, Tensor]:
    masked_RO = torch.where(out_RO > 0, grad_RO, 0.0)
    return masked_RO, masked_RO.sum(0, dtype=torch.float32).to(out_RO.dtype)


relu_backward = define(
    "relu_backward(Tensor grad, Tensor out) -> (Tensor masked, Tensor sums)",
    _plain_relu_backward,
    launches=1,
)
"""The gradient (R, O), zeroed where `out` (ReLU's output) is 0, and its sums over rows (O)."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Joined:
    """Layers of the same input, with their weights and biases concatenated."""

    weight: Tensor
    bias: Tensor | None
    widths: Sequence[int]
    parameters: Sequence[Tensor]
    """Weights, then biases of the layers."""

    def __call__(self, x: Tensor) -> tuple[Tensor, ...]:
        """The output (..., O) of each layer for x (..., I)."""
        if not torch.is_grad_enabled():
            return torch.split_with_sizes(F.linear(x, self.weight, self.bias), self.widths, -1)
        out: tuple[Tensor, ...] = _joined_linear(x, self.weight, self.bias, self.widths, *self.parameters)
        return out


def can_join(layers: Sequence[nn.Linear]) -> bool:
    """Whether the layers agree in input width, bias and dtype."""
    alike = {(layer.in_features, layer.bias is None, layer.weight.dtype) for layer in layers}
    return len(alike) == 1


def join(groups: Mapping[str, Sequence[nn.Linear]]) -> dict[str, Joined]:
    """Join the layers of each group, with one copy of all weights and one of all biases; see `can_join`."""
    weights, biases = _parameters([layer for layers in groups.values() for layer in layers])
    with torch.no_grad():
        weight, bias = torch.cat(weights), torch.cat(biases) if biases else None
    joined, begin, first = {}, 0, 0
    for name, layers in groups.items():
        widths, after = [layer.out_features for layer in layers], first + len(layers)
        end = begin + sum(widths)
        joined[name] = Joined(
            weight=weight[begin:end],
            bias=None if bias is None else bias[begin:end],
            widths=widths,
            parameters=(*weights[first:after], *biases[first:after]),
        )
        begin, first = end, after
    return joined


def _parameters(layers: Sequence[nn.Linear]) -> tuple[list[Tensor], list[Tensor]]:
    biases: list[Tensor] = [] if layers[0].bias is None else [layer.bias for layer in layers]
    return [layer.weight for layer in layers], biases


class _JoinedLinear(torch.autograd.Function):
    """x weight^T + bias for concatenated weights; the gradients are split again."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, widths: Sequence[int], *_: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.save_for_backward(x, weight)
        ctx.widths = widths
        return torch.split_with_sizes(F.linear(x, weight, bias), widths, -1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        grad_RO = torch.cat([grad.flatten(0, -2) for grad in grads], 1)
        x_RI = x.flatten(0, -2)
        needs_x, needs = ctx.needs_input_grad[0], ctx.needs_input_grad[4:]
        grad_x = torch.mm(grad_RO, weight).view(x.shape) if needs_x else None
        parts: list[Tensor | None] = [None] * len(needs)  # of weights and biases, where any is trained
        count = len(ctx.widths)
        if True in needs[:count]:
            parts[:count] = torch.split_with_sizes(torch.mm(grad_RO.T, x_RI), ctx.widths)
        if True in needs[count:]:
            parts[count:] = torch.split_with_sizes(grad_RO.sum(0), ctx.widths)
        return grad_x, None, None, None, *parts


_joined_linear = direct(_JoinedLinear)
