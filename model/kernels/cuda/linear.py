"""The first and the last linear layer of a sub-layer, fused with neighbouring operations."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from model.kernels.cuda.operators import Operator, define

HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


def has_hooks(module: nn.Module) -> bool:
    """Whether calling the module runs hooks, as with ZeRO-3, which gathers parameters in them."""
    return any(getattr(module, hooks) for hooks in HOOKS)


class LastLinear(nn.Linear):
    """The last layer of a sub-layer. While `defers_bias` is set, the next operator adds its bias."""

    defers_bias = False

    def forward(self, input: Tensor) -> Tensor:
        """(..., I) to (..., O)."""
        return F.linear(input, self.weight, None if self.defers_bias else self.bias)


class FirstLinear(nn.Linear):
    """The first layer of a sub-layer, which can fuse two operations into its matmuls.

    With `applies_relu` its forward matmul applies ReLU. With `fuses_residual_gradient` its backward matmul adds the
    gradient of the residual connection.
    """

    fuses_residual_gradient = False
    """Whether the residual connection must use `residual_input` instead of this layer's input."""
    applies_relu = False
    residual_input: Tensor | None = None
    """This layer's input, passed through so that its gradient arrives in this layer's backward pass."""

    def forward(self, input: Tensor) -> Tensor:
        """(..., I) to (..., O)."""
        if not (self.fuses_residual_gradient or self.applies_relu):
            return F.linear(input, self.weight, self.bias)
        out: Tensor
        out, residual_input = _FirstLinear.apply(  # type: ignore[no-untyped-call]
            input, self.weight, self.bias, self.applies_relu
        )
        self.residual_input = residual_input if self.fuses_residual_gradient else None
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
