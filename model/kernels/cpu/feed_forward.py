"""The feed-forward sub-layer with ReLU as one autograd function, for large matmuls."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from typing_extensions import override

from model.feed_forward import FeedForward
from model.kernels.cpu.dropout import CpuDropout
from model.kernels.cpu.linear import as_rows, can_join, multiply, weight_gradient, with_rows


class CpuFeedForward(FeedForward):
    """FeedForward for CPUs: large matmuls and the ReLU between them are one autograd function."""

    @override
    def forward(self, x: Tensor) -> Tensor:
        if self.activation is not F.relu or not can_join(x, self.inner, self.outer):
            return super().forward(x)
        dropout = self.dropout if self.dropout.training and self.dropout.p > 0 else None
        out: Tensor = _ReluFeedForward.apply(  # type: ignore[no-untyped-call]
            x, self.inner.weight, self.inner.bias, self.outer.weight, self.outer.bias, dropout
        )
        return out


class _ReluFeedForward(torch.autograd.Function):
    """linear, ReLU, dropout, linear. Keeps one tensor of the inner width for backward; its zeros are the mask."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        inner: Tensor,
        inner_bias: Tensor | None,
        outer: Tensor,
        outer_bias: Tensor | None,
        dropout: CpuDropout | None,
    ) -> Tensor:
        num_rows = x[..., 0].numel()
        x_RI = as_rows(x, inner)
        hidden_RH = multiply(x_RI, inner, inner_bias)
        ctx.scale = 1.0 if dropout is None else dropout.scale
        if dropout is not None:
            kept = hidden_RH[:num_rows]
            _zero_(kept, where=dropout.noise(kept), is_at_most=dropout.threshold)
            outer = outer * ctx.scale  # equals scaling the hidden states, which have more elements
        hidden_RH.relu_()
        ctx.save_for_backward(x_RI, inner, hidden_RH, outer)
        return multiply(hidden_RH, outer, outer_bias)[:num_rows].view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x_RI, inner, hidden_RH, outer = ctx.saved_tensors
        grad = grads[0]
        num_rows = grad[..., 0].numel()
        grad_RO = with_rows(grad, len(x_RI))
        needs_x, needs_inner, needs_inner_bias, needs_outer, needs_outer_bias, _ = ctx.needs_input_grad
        grad_outer = weight_gradient(grad_RO, hidden_RH).mul_(ctx.scale) if needs_outer else None
        grad_outer_bias = grad_RO[:num_rows].sum(0) if needs_outer_bias else None
        grad_RH = multiply(grad_RO, outer.T)
        _zero_(grad_RH, where=hidden_RH, is_at_most=0.0)
        return (
            multiply(grad_RH, inner.T)[:num_rows].view(*grad.shape[:-1], -1) if needs_x else None,
            weight_gradient(grad_RH, x_RI) if needs_inner else None,
            grad_RH[:num_rows].sum(0) if needs_inner_bias else None,
            grad_outer,
            grad_outer_bias,
            None,
        )


def _zero_(x: Tensor, *, where: Tensor, is_at_most: float) -> None:
    torch.ops.aten.threshold_backward.grad_input(x, where, is_at_most, grad_input=x)
