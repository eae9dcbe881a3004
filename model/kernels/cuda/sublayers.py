"""Whole sub-layers with their residual and norm, each as one function of autograd.

What torch does on the host for a function, forward and backward, takes as long there as several kernels on a GPU. They
are for passes in which nothing looks into layers (`Current.is_bare`). Shapes: N tokens, D features of the model.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from model.kernels.cuda.linear import relu_backward
from model.kernels.cuda.operators import direct
from model.kernels.cuda.residual_norm import residual_norm, residual_norm_gradients
from model.kernels.cuda.ways import Attending


@dataclass(slots=True)
class ResidualNormArguments:
    """Dropout and norm behind a sub-layer: arguments of `residual_norm`."""

    tokens: Tensor | None
    site: int
    p: float
    eps: float


class FeedForwardAndNorm(torch.autograd.Function):
    """s = x + dropout(relu(h w1^T + b1) w2^T + b2), and its norm: all of a feed-forward sub-layer."""

    @staticmethod
    def forward(
        ctx: Any, behind: ResidualNormArguments, x: Tensor, h: Tensor | None, w1: Tensor, b1: Tensor | None, w2: Tensor,
        b2: Tensor | None, weight: Tensor, bias: Tensor | None,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """Returns s and its norm; h is x where it is None."""
        x = x.contiguous()
        h_ND = (x if h is None else h).flatten(0, -2)
        hidden_NF = F.linear(h_ND, w1).relu_() if b1 is None else torch._addmm_activation(b1, h_ND, w1.T)
        y = torch.mm(hidden_NF, w2.T).view(x.shape)
        summed, normed, mean, rstd = residual_norm(
            *(x, y, b2, weight, bias, behind.tokens, behind.site, behind.p, behind.eps)
        )
        ctx.save_for_backward(h_ND, hidden_NF, w1, w2, summed, mean, rstd, weight)
        ctx.behind, ctx.is_post = behind, h is None
        ctx.set = b1 is not None, b2 is not None, bias is not None
        ctx.set_materialize_grads(False)
        return summed, normed

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        """Gradients of the tensors; one of the two that come may be None."""
        h_ND, hidden_NF, w1, w2, *kept = ctx.saved_tensors
        has_b1, has_b2, has_bias = ctx.set
        grad_x, grad_y, sums_3D = residual_norm_gradients(
            *(grads, kept, ctx.behind.tokens, ctx.behind.site, ctx.behind.p, has_bias)
        )
        grad_ND = grad_y.flatten(0, -2)
        grad_NF, grad_b1 = relu_backward(torch.mm(grad_ND, w2), hidden_NF)
        needs = ctx.needs_input_grad
        grad_x, grad_h = _input_gradients(grad_x, grad_NF, w1, is_post=ctx.is_post)
        return (
            *(None, grad_x, grad_h, torch.mm(grad_NF.T, h_ND) if needs[3] else None, grad_b1 if has_b1 else None),
            *(torch.mm(grad_ND.T, hidden_NF) if needs[5] else None, sums_3D[2] if has_b2 else None),
            *(sums_3D[0], sums_3D[1] if has_bias else None),
        )


@dataclass(slots=True)
class AttentionCore:
    """What attention does between its projections."""

    attending: Attending
    head_width: int
    widths: Sequence[int]
    """Of queries, keys and values that are one projection; a single one where keys and values are given."""


class AttentionAndNorm(torch.autograd.Function):
    """s = x + dropout(attention(h w^T + b, ...) wo^T + bo), and its norm: all of an attention sub-layer.

    Takes projected keys and values (1, M, ...) or None, in which case w joins the layers of queries, keys and values;
    `parameters` are then the weights of these, then their biases, for their gradients.
    """

    @staticmethod
    def forward(
        ctx: Any, behind: ResidualNormArguments, inside: AttentionCore, x: Tensor, h: Tensor | None, w: Tensor,
        b: Tensor | None, key: Tensor | None, value: Tensor | None, wo: Tensor, bo: Tensor | None, weight: Tensor,
        bias: Tensor | None, *parameters: Tensor,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """Returns s and its norm; h is x where it is None."""
        x, width, attending = x.contiguous(), inside.head_width, inside.attending
        h_ND = (x if h is None else h).flatten(0, -2)
        projected = F.linear(h_ND, w, b)
        if key is None or value is None:
            query, key, value = (
                part.view(len(part), -1, width) for part in torch.split_with_sizes(projected, inside.widths, 1)
            )
        else:
            query = projected.view(len(projected), -1, width)
            key, value = key.view(key.shape[1], -1, width), value.view(value.shape[1], -1, width)
        attended, *more = attending.forward(query, key, value)
        attended_NE = attended.flatten(1)
        y = torch.mm(attended_NE, wo.T).view(x.shape)
        summed, normed, mean, rstd = residual_norm(
            *(x, y, bo, weight, bias, behind.tokens, behind.site, behind.p, behind.eps)
        )
        ctx.save_for_backward(h_ND, w, wo, summed, mean, rstd, weight, query, key, value, attended, *more)
        ctx.behind, ctx.inside, ctx.is_post = behind, inside, h is None
        ctx.set = b is not None, bo is not None, bias is not None
        ctx.set_materialize_grads(False)
        return summed, normed

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        """Gradients of the tensors; one of the two that come may be None."""
        h_ND, w, wo, *rest = ctx.saved_tensors
        kept, (query, key, value, attended, *more) = rest[:4], rest[4:]
        inside, (has_b, has_bo, has_bias) = ctx.inside, ctx.set
        grad_x, grad_y, sums_3D = residual_norm_gradients(
            *(grads, kept, ctx.behind.tokens, ctx.behind.site, ctx.behind.p, has_bias)
        )
        grad_ND = grad_y.flatten(0, -2)
        by_query, by_key, by_value = inside.attending.backward(
            torch.mm(grad_ND, wo).view(attended.shape), query, key, value, attended, *more
        )
        count, needs = len(inside.widths), ctx.needs_input_grad
        is_self = count > 1
        if is_self:
            grad_NE = torch.cat([by_query.flatten(1), by_key.flatten(1), by_value.flatten(1)], 1)
            given: tuple[Tensor | None, ...] = None, None
        else:
            grad_NE, given = by_query.flatten(1), (by_key.flatten(1)[None], by_value.flatten(1)[None])
        # of a joined projection, the weights and biases that it was made of are asked for
        asked = (True in needs[12 : 12 + count], True in needs[12 + count :]) if is_self else needs[4:6]
        grad_w = torch.mm(grad_NE.T, h_ND) if asked[0] else None
        grad_b = grad_NE.sum(0) if has_b and asked[1] else None
        grad_wo = torch.mm(grad_ND.T, attended.flatten(1)) if needs[8] else None
        grad_x, grad_h = _input_gradients(grad_x, grad_NE, w, is_post=ctx.is_post)
        parts: tuple[Tensor | None, ...] = ()
        if is_self:
            none = (None,) * count
            parts = none if grad_w is None else torch.split_with_sizes(grad_w, inside.widths)
            if has_b:
                parts += none if grad_b is None else torch.split_with_sizes(grad_b, inside.widths)
            grad_w = grad_b = None
        return (
            *(None, None, grad_x, grad_h, grad_w, grad_b, *given, grad_wo, sums_3D[2] if has_bo else None),
            *(sums_3D[0], sums_3D[1] if has_bias else None, *parts),
        )


def _input_gradients(grad_x: Tensor, grad_NE: Tensor, weight: Tensor, *, is_post: bool) -> tuple[Tensor, Tensor | None]:
    """Gradients of x and h for one of the first projection; of both as one where h is x."""
    if is_post:
        return torch.addmm(grad_x.flatten(0, -2), grad_NE, weight).view(grad_x.shape), None
    return grad_x, torch.mm(grad_NE, weight).view(grad_x.shape)


feed_forward_and_norm, attention_and_norm = direct(FeedForwardAndNorm), direct(AttentionAndNorm)
