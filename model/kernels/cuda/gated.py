"""The gated feed-forward layer (SwiGLU): gate and inner layer as one matmul, and one kernel behind it each way.

Shapes: R rows, D features of the model, F of the inner layer.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from typing_extensions import override

from model.feed_forward import GatedFeedForward
from model.kernels.cuda.linear import Joined
from model.kernels.cuda.operators import Operator, define, direct
from model.layout import Current


class CudaGatedFeedForward(GatedFeedForward):
    """GatedFeedForward for GPUs. `use` of this package sets both attributes."""

    current: Current
    name: str
    """Name of the module, the key of its joined layers in `Current.projections`."""

    @override
    def forward(self, x: Tensor) -> Tensor:
        if self.activation is not F.silu or not torch.is_grad_enabled():
            return super().forward(x)
        is_bare, joined = self.current.is_bare, self.current.projections.get(self.name)
        if isinstance(joined, Joined):
            apply = _gated_linear if is_bare else GatedLinear.apply
            hidden = apply(x, joined.weight, joined.bias, *joined.parameters)
        else:
            apply = _swiglu if is_bare else SwiGlu.apply
            hidden = apply(self.gate(x), self.inner(x))
        out: Tensor = self.outer(self.dropout(hidden))
        return out


class SwiGlu(torch.autograd.Function):
    """silu(gate) * inner, (..., F)."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, inner: Tensor) -> Tensor:
        """(..., F)."""
        gate_RF, inner_RF = gate.flatten(0, -2), inner.flatten(0, -2)
        ctx.save_for_backward(gate_RF, inner_RF)
        out: Tensor = swiglu(gate_RF, inner_RF)
        return out.view(gate.shape)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        """Gradients of both."""
        grad_R2F = swiglu_backward(grads[0].flatten(0, -2), *ctx.saved_tensors)
        return tuple(x.view(grads[0].shape) for x in grad_R2F.chunk(2, -1))


class GatedLinear(torch.autograd.Function):
    """silu(gate(x)) * inner(x) for weights and biases of gate and inner layer that are concatenated.

    Takes x, both concatenated, and behind them the weights of both layers, then their biases: for their gradients.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, *_: Tensor) -> Tensor:
        """(..., D) to (..., F)."""
        x_RD = x.flatten(0, -2)
        both = F.linear(x_RD, weight, bias).chunk(2, -1)
        ctx.save_for_backward(x_RD, weight, *both)
        out: Tensor = swiglu(*both)
        return out.view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of x and of the layers' parameters."""
        x_RD, weight, gate_RF, inner_RF = ctx.saved_tensors
        grad_R2F = swiglu_backward(grads[0].flatten(0, -2), gate_RF, inner_RF)
        grad_x = torch.mm(grad_R2F, weight).view(*grads[0].shape[:-1], -1) if ctx.needs_input_grad[0] else None
        needs = ctx.needs_input_grad[3:]
        grad_weights = torch.mm(grad_R2F.T, x_RD).chunk(2) if True in needs[:2] else (None, None)
        grad_biases = grad_R2F.sum(0).chunk(2) if True in needs[2:] else [None] * len(needs[2:])
        return grad_x, None, None, *grad_weights, *grad_biases


_swiglu, _gated_linear = direct(SwiGlu), direct(GatedLinear)


def _plain_forward(gate: Tensor, inner: Tensor) -> Tensor:
    precision = torch.promote_types(gate.dtype, torch.float32)
    return (F.silu(gate.to(precision)) * inner.to(precision)).to(gate.dtype)


def _plain_backward(grad: Tensor, gate: Tensor, inner: Tensor) -> Tensor:
    precision = torch.promote_types(gate.dtype, torch.float32)
    g, x, y = (part.to(precision) for part in (grad, gate, inner))
    passed = x.sigmoid()
    by_gate = g * y * passed * (1 + x * (1 - passed))
    return torch.cat([by_gate, g * x * passed], -1).to(gate.dtype)


swiglu = define(
    "swiglu(Tensor gate, Tensor inner) -> Tensor",
    _plain_forward,
    cost=Operator(launches=1),
    fake=lambda gate, _: gate.new_empty(gate.shape),
)
"""silu(gate) * inner, (R, F). Both may be parts of rows that are longer."""
swiglu_backward = define(
    "swiglu_backward(Tensor grad, Tensor gate, Tensor inner) -> Tensor",
    _plain_backward,
    cost=Operator(launches=1),
    fake=lambda grad, gate, _: gate.new_empty((gate.shape[0], 2 * gate.shape[1])),
)
"""(R, 2 F): the gradients of gate, then those of inner, as one matmul behind it takes them."""
