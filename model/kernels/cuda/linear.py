"""The first and the last linear layer of a sub-layer, which take over what stands beside them."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from model.kernels.cuda.operators import Operator, define

HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


def has_hooks(module: nn.Module) -> bool:
    """Whether somebody waits for its being called, as ZeRO-3 does to gather its parameters."""
    return any(getattr(module, hooks) for hooks in HOOKS)


class LastLinear(nn.Linear):
    """The last layer of a sub-layer, which leaves its bias to what follows while it is told to."""

    leaves_bias = False

    def forward(self, input: Tensor) -> Tensor:
        """(..., I) to (..., O)."""
        return F.linear(input, self.weight, None if self.leaves_bias else self.bias)


class FirstLinear(nn.Linear):
    """The first layer of a sub-layer. While it is told to, it adds the residual's gradient within its own matmul, and
    applies ReLU within that of the forward pass."""

    passes = False
    """Whether the residual is to take `passed` in place of what this layer was given."""
    is_activated = False
    passed: Tensor | None = None
    """What it was given, whose gradient comes back here."""

    def forward(self, input: Tensor) -> Tensor:
        """(..., I) to (..., O)."""
        if not (self.passes or self.is_activated):
            return F.linear(input, self.weight, self.bias)
        out: Tensor
        out, passed = _FirstLinear.apply(  # type: ignore[no-untyped-call]
            input, self.weight, self.bias, self.is_activated
        )
        self.passed = passed if self.passes else None
        return out


class _FirstLinear(torch.autograd.Function):
    """x weight^T + bias, through ReLU if wanted, and x."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, is_activated: bool) -> tuple[Tensor, Tensor]:
        x_RI = x.flatten(0, -2)
        if not is_activated:
            out_RO = F.linear(x_RI, weight, bias)
        elif bias is None:
            out_RO = F.linear(x_RI, weight).relu_()
        else:
            out_RO = torch._addmm_activation(bias, x_RI, weight.T)
        ctx.save_for_backward(x_RI, weight, out_RO if is_activated else None)
        ctx.set_materialize_grads(False)
        return out_RO.view(*x.shape[:-1], -1), x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        x_RI, weight, out_RO = ctx.saved_tensors
        by_out, by_passed = grads
        if by_out is None:
            return by_passed, None, None, None
        needs_x, needs_weight, needs_bias, _ = ctx.needs_input_grad
        grad_RO, by_bias = by_out.flatten(0, -2), None
        if out_RO is not None:
            grad_RO, by_bias = relu_backward(grad_RO, out_RO)
        elif needs_bias:
            by_bias = grad_RO.sum(0)
        by_x = None
        if needs_x:
            by_x_RI = (
                torch.mm(grad_RO, weight)
                if by_passed is None
                else torch.addmm(by_passed.flatten(0, -2), grad_RO, weight)
            )
            by_x = by_x_RI.view(*by_out.shape[:-1], -1)
        by_weight = torch.mm(grad_RO.T, x_RI) if needs_weight else None
        return by_x, by_weight, by_bias if needs_bias else None, None


def _plain_relu_backward(grad_RO: Tensor, out_RO: Tensor) -> tuple[Tensor, Tensor]:
    masked_RO = torch.where(out_RO > 0, grad_RO, 0.0)
    return masked_RO, masked_RO.sum(0, dtype=torch.float32).to(out_RO.dtype)


relu_backward = define(
    "relu_backward(Tensor grad, Tensor out) -> (Tensor masked, Tensor sums)",
    _plain_relu_backward,
    cost=Operator(launches=1),
    fake=lambda grad, out: (torch.empty_like(out), out.new_empty(out.shape[1])),
)
"""The gradient (R, O) where `out`, which is what ReLU gave, is above 0, and its sums over rows (O)."""
