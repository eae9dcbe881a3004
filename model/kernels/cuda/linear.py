"""The first and the last linear layer of a sub-layer, fused with neighbouring operations, and layers of the same input.

Those are one matmul. Each weight remains its own parameter, so checkpoints and the optimizer are not affected.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from typing_extensions import override

from model.feed_forward import FeedForward
from model.kernels.cuda.operators import Operator, define, direct
from model.layout import Current

HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


def has_hooks(module: nn.Module) -> bool:
    """Whether calling the module runs hooks, as with ZeRO-3, which gathers parameters in them."""
    return any(getattr(module, hooks) for hooks in HOOKS)


@dataclass(slots=True)
class Fusion:
    """What a linear layer does at the moment for its neighbours. No attributes of the layer: torch's modules look at
    each that is set, which takes ten Python calls."""

    current: Current = field(default_factory=Current)
    defers_bias: bool = False
    """Whether the operator behind the last layer of a sub-layer adds its bias."""
    applies_relu: bool = False
    """Whether the forward matmul of a first layer applies ReLU."""
    fuses_residual_gradient: bool = False
    """Whether the backward matmul of a first layer adds the gradient of the residual connection, which must then use
    `residual_input` instead of the layer's input."""
    residual_input: Tensor | None = None
    """The first layer's input, passed through so that its gradient arrives in the layer's backward pass."""


class _Fusible(nn.Linear):
    """What the first and the last layer of a sub-layer have in common."""

    fusion: Fusion

    def __call__(self, *args: Tensor) -> Tensor:
        """`forward`, without torch's way to it where there is nothing on it."""
        if self.fusion.current.is_bare:
            return self.forward(*args)
        out: Tensor = super().__call__(*args)
        return out


class LastLinear(_Fusible):
    """The last layer of a sub-layer, without its bias while `fusion` says so."""

    def forward(self, input: Tensor) -> Tensor:
        """(..., I) to (..., O)."""
        own: Any = self._parameters
        return F.linear(input, own["weight"], None if self.fusion.defers_bias else own["bias"])


class FirstLinear(_Fusible):
    """The first layer of a sub-layer, which can fuse two operations into its matmuls while `fusion` says so."""

    def forward(self, input: Tensor) -> Tensor:
        """(..., I) to (..., O)."""
        fusion = self.fusion
        own: Any = self._parameters
        weight, bias = own["weight"], own["bias"]
        if not (fusion.fuses_residual_gradient or fusion.applies_relu):
            return F.linear(input, weight, bias)
        apply = _first_linear if fusion.current.is_bare else _FirstLinear.apply
        out: Tensor
        out, residual_input = apply(input, weight, bias, fusion.applies_relu)
        fusion.residual_input = residual_input if fusion.fuses_residual_gradient else None
        return out


class _FirstLinear(torch.autograd.Function):
    """Returns x weight^T + bias, with ReLU if asked for, and x itself."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, applies_relu: bool) -> tuple[Tensor, Tensor]:
        x_RI = x.flatten(0, -2)
        if not applies_relu:
            out_RO = F.linear(x_RI, weight, bias)
        elif bias is None:
            out_RO = F.linear(x_RI, weight).relu_()
        else:
            out_RO = torch._addmm_activation(bias, x_RI, weight.T)
        ctx.save_for_backward(x_RI, weight, out_RO if applies_relu else None)
        ctx.set_materialize_grads(False)
        return out_RO.view(*x.shape[:-1], -1), x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        x_RI, weight, out_RO = ctx.saved_tensors
        grad_out, grad_residual = grads
        if grad_out is None:
            return grad_residual, None, None, None
        needs_x, needs_weight, needs_bias, _ = ctx.needs_input_grad
        grad_RO, grad_bias = grad_out.flatten(0, -2), None
        if out_RO is not None:
            grad_RO, grad_bias = relu_backward(grad_RO, out_RO)
        elif needs_bias:
            grad_bias = grad_RO.sum(0)
        grad_x = None
        if needs_x:
            grad_x_RI = (
                torch.mm(grad_RO, weight)
                if grad_residual is None
                else torch.addmm(grad_residual.flatten(0, -2), grad_RO, weight)
            )
            grad_x = grad_x_RI.view(*grad_out.shape[:-1], -1)
        grad_weight = torch.mm(grad_RO.T, x_RI) if needs_weight else None
        return grad_x, grad_weight, grad_bias if needs_bias else None, None


_first_linear = direct(_FirstLinear)


def _plain_relu_backward(grad_RO: Tensor, out_RO: Tensor) -> tuple[Tensor, Tensor]:
    masked_RO = torch.where(out_RO > 0, grad_RO, 0.0)
    return masked_RO, masked_RO.sum(0, dtype=torch.float32).to(out_RO.dtype)


relu_backward = define(
    "relu_backward(Tensor grad, Tensor out) -> (Tensor masked, Tensor sums)",
    _plain_relu_backward,
    cost=Operator(launches=1),
    fake=lambda grad, out: (torch.empty_like(out), out.new_empty(out.shape[1])),
)
"""The gradient (R, O), zeroed where `out` (ReLU's output) is 0, and its sums over rows (O)."""


class CudaFeedForward(FeedForward):
    """FeedForward for GPUs. `use` of this package sets its attribute."""

    current: Current

    @override
    def forward(self, x: Tensor) -> Tensor:
        parts: Any = self._modules
        inner, dropout = parts["inner"], parts["dropout"]
        if self.activation is not F.relu or not isinstance(inner, FirstLinear):
            return super().forward(x)
        inner.fusion.applies_relu = True
        try:
            hidden = inner(x)
        finally:
            inner.fusion.applies_relu = False
        if not self.current.is_bare or (dropout.p and dropout.training):
            hidden = dropout(hidden)
        out: Tensor = parts["outer"](hidden)
        return out

    def weights(self) -> tuple[Tensor, Tensor | None, Tensor, Tensor | None] | None:
        """Weight and bias of both layers; None while there is dropout between them."""
        parts: Any = self._modules
        if parts["dropout"].p and parts["dropout"].training:
            return None
        first, last = parts["inner"]._parameters, parts["outer"]._parameters
        return first["weight"], first["bias"], last["weight"], last["bias"]


@dataclass(kw_only=True, slots=True, frozen=True)
class Joined:
    """Layers of the same input, with their weights and biases concatenated."""

    weight: Tensor
    bias: Tensor | None
    widths: Sequence[int]
    parameters: Sequence[Tensor]
    """Weights, then biases of the layers."""
    apply: Callable[..., Any]

    def __call__(self, x: Tensor) -> tuple[Tensor, ...]:
        """The output (..., O) of each layer for x (..., I)."""
        if not torch.is_grad_enabled():
            return torch.split_with_sizes(F.linear(x, self.weight, self.bias), self.widths, -1)
        out: tuple[Tensor, ...] = self.apply(x, self.weight, self.bias, self.widths, *self.parameters)
        return out


def can_join(layers: Sequence[nn.Linear]) -> bool:
    """Whether the layers agree in input width, bias and dtype and have no hooks, with which ZeRO-3 gathers weights."""
    alike = {(layer.in_features, layer.bias is None, layer.weight.dtype) for layer in layers}
    return len(alike) == 1 and not any(map(has_hooks, layers))


def join(groups: Mapping[str, Sequence[nn.Linear]], *, is_bare: bool = False) -> dict[str, Joined]:
    """Join the layers of each group, with one copy of all weights and one of all biases; see `can_join`.

    `is_bare`: see `model.layout.Current`.
    """
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
            apply=_joined_linear if is_bare else _JoinedLinear.apply,
        )
        begin, first = end, after
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
