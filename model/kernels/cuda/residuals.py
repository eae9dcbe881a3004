"""Bias, dropout, residual connection and norm fused into one operator forward and one backward.

Kept for the backward pass: the sums x + dropout(y + bias), and the mean and rstd (reciprocal standard deviation) of
each row. Dropout masks are recomputed.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from typing_extensions import override

from model.kernels.cuda.attention import Attends, CudaAttention
from model.kernels.cuda.dropout import CudaDropout
from model.kernels.cuda.linear import has_hooks
from model.kernels.cuda.operators import direct
from model.kernels.cuda.residual_norm import residual_norm, residual_norm_gradients
from model.kernels.cuda.sublayers import ResidualNormArguments, attention_and_norm, feed_forward_and_norm
from model.layout import Current
from model.sublayers import Dropout, FeedForward, PostNorm, PreNorm, Residual

Norm = nn.LayerNorm | nn.RMSNorm


@dataclass(kw_only=True, slots=True)
class Neighbours:
    """What a residual module can be fused with. Not a module itself, so that torch registers nothing twice."""

    norm: Norm | None
    """The norm behind it, if the operator computes it: of a PreNorm that of the next one, or the last of its stack."""
    dropout: Dropout
    relu: FeedForward | None = None
    """The sub-layer, if it is two linear layers with ReLU between them."""
    is_attention: bool = False
    """Whether the sub-layer is attention with a linear layer at its end."""
    is_last: bool = False
    """Of a PreNorm, whether it is the last of its layer: `norm` is then the next layer's, or that of the stack."""


class _Fused(Residual):
    """What pre-norm and post-norm have in common. `use` of this package sets both attributes."""

    current: Current
    neighbours: Neighbours

    def add_and_norm(
        self, x: Tensor, sublayer: Callable[[Tensor], Tensor], sublayer_input: Tensor
    ) -> tuple[Tensor, Tensor] | None:
        """x + dropout(sublayer(sublayer_input)) and its norm; None, with nothing done, if they cannot be fused.

        A norm or dropout with hooks is not fused, because hooks run only when the module is called: ZeRO-3 gathers
        parameters in them.
        """
        near, is_bare = self.neighbours, self.current.is_bare
        norm = near.norm
        weights: Any = None if norm is None else norm._parameters
        if norm is None or (weight := weights["weight"]).dtype != x.dtype:
            return None
        if not is_bare and (has_hooks(norm) or has_hooks(near.dropout)):
            return None
        if (drawn := _tokens_of(near.dropout, x)) is None:
            return None
        tokens, site, p = drawn
        fused: tuple[Tensor, Tensor]
        bias, eps = weights.get("bias"), norm.eps  # an RMS norm has no bias
        if eps is None:
            eps = torch.finfo(x.dtype).eps
        has_grad = torch.is_grad_enabled()
        if is_bare and has_grad:
            behind = ResidualNormArguments(tokens, site, p, eps)
            h = None if sublayer_input is x else sublayer_input
            if isinstance(sublayer, Attends) and near.is_attention and (inside := sublayer.inside()) is not None:
                more, own, parameters = inside
                fused = attention_and_norm(behind, more, x, h, *own, weight, bias, *parameters)
                return fused
            relu = near.relu if getattr(sublayer, "__self__", sublayer) is near.relu else None
            if relu is not None and (layers := _weights(relu)) is not None:
                fused = feed_forward_and_norm(behind, x, h, *layers, weight, bias)
                return fused
        given = x.contiguous(), sublayer(sublayer_input).contiguous(), None, weight, bias, tokens, site, p, eps
        if not has_grad:
            summed, normed, *_ = residual_norm(*given)
            return summed, normed
        fused = _residual_norm(*given)
        return fused


def _weights(relu: FeedForward) -> tuple[Tensor, Tensor | None, Tensor, Tensor | None] | None:
    """Weight and bias of both layers; None while there is dropout between them."""
    parts: Any = relu._modules
    if parts["dropout"].p and parts["dropout"].training:
        return None
    first, last = parts["inner"]._parameters, parts["outer"]._parameters
    return first["weight"], first["bias"], last["weight"], last["bias"]


def neighbours_of(residual: Residual) -> Neighbours:
    """The parts that it has without a sub-layer: its own norm and dropout."""
    norm = None if isinstance(residual, PreNorm) else _fusible(residual.norm)
    return Neighbours(norm=norm, dropout=residual.dropout)


def _fusible(norm: nn.Module) -> Norm | None:
    """The norm, if the operator computes it."""
    if not isinstance(norm, Norm) or norm.weight is None or (isinstance(norm, nn.LayerNorm) and norm.bias is None):
        return None
    return norm


class CudaPostNorm(PostNorm, _Fused):
    """PostNorm for GPUs."""

    @override
    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        fused = self.add_and_norm(x, sublayer, x)
        return super().forward(x, sublayer) if fused is None else fused[1]


class CudaPreNorm(PreNorm, _Fused):
    """PreNorm for GPUs, which also computes the norm of the next PreNorm.

    That of another layer only in passes of training, in which nothing looks into layers: ZeRO-3 has not gathered its
    weights yet, and a search calls layers one by one.
    """

    @override
    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        near, current = self.neighbours, self.current
        normed = normalised(current, x, self.norm)
        if near.norm is not None and (not near.is_last or (current.is_bare and current.layout is not None)):
            fused = self.add_and_norm(x, sublayer, normed)
            if fused is not None:
                current.normed = *fused, near.norm
                return fused[0]
        out: Tensor = x + self.dropout(sublayer(normed))
        return out


def normalised(current: Current, x: Tensor, norm: nn.Module) -> Tensor:
    """`norm(x)`, which the operator before may have computed."""
    normed, current.normed = current.normed, None
    out: Tensor = normed[1] if normed is not None and normed[0] is x and normed[2] is norm else norm(x)
    return out


def link(layer: nn.Module) -> None:
    """Connect each residual module of a layer with its sub-layer and with the next residual module."""
    before: CudaPreNorm | None = None
    for name in ("self_attention", "cross_attention", "feed_forward"):
        residual, sublayer = getattr(layer, f"{name}_residual", None), getattr(layer, name, None)
        if residual is None:  # an encoder has no cross-attention
            continue
        if not isinstance(residual, _Fused):
            before = None
            continue
        near = residual.neighbours
        if type(sublayer) is FeedForward and sublayer.activation is F.relu:
            is_plain = type(sublayer.inner) is type(sublayer.outer) is nn.Linear
            near.relu = sublayer if is_plain else None
        near.is_attention = type(sublayer) is CudaAttention and type(sublayer.output) is nn.Linear
        if isinstance(residual, CudaPreNorm):
            if before is not None:
                before.neighbours.norm = _fusible(residual.norm)
            before = residual


def link_layers(layers: Iterable[nn.Module], norm: nn.Module) -> None:
    """Connect the last PreNorm of each layer with the first of the next one, and that of the last with the norm."""
    by_layer = [[part for part in layer.children() if isinstance(part, Residual)] for layer in layers]
    behind = [parts[0].norm if parts and isinstance(parts[0], CudaPreNorm) else None for parts in by_layer[1:]]
    for parts, following in zip(by_layer, [*behind, norm], strict=True):
        if parts and isinstance(parts[-1], CudaPreNorm):
            near = parts[-1].neighbours
            near.norm = None if following is None else _fusible(following)
            near.is_last = True


def _tokens_of(dropout: Dropout, x: Tensor) -> tuple[Tensor | None, int, float] | None:
    """Token places, number and probability of a dropout by position; None if the dropout uses a generator."""
    if not dropout.training or dropout.p == 0:
        return None, 0, 0.0
    layout = dropout.current.layout if isinstance(dropout, CudaDropout) else None
    if layout is None or not isinstance(dropout, CudaDropout):
        return None
    tokens_N4 = (layout.source if dropout.side == "source" else layout.target).places
    return (tokens_N4, dropout.site, dropout.p) if x.shape[:-1].numel() == tokens_N4.shape[0] else None


class ResidualNorm(torch.autograd.Function):
    """x + dropout(y), and its norm: a layer norm if the norm has a bias, else an RMS norm."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> tuple[Tensor, Tensor]:
        """Returns the sum and its norm; arguments as of `residual_norm`."""
        _, _, _, weight, bias, tokens, ctx.site, ctx.p, _ = given
        summed, normed, mean, rstd = residual_norm(*given)
        ctx.save_for_backward(summed, mean, rstd, weight, tokens)
        ctx.has_bias = bias is not None
        ctx.set_materialize_grads(False)
        return summed, normed

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        """Gradients of the tensor inputs; one of the two output gradients may be None."""
        *kept, tokens = ctx.saved_tensors
        grad_x, grad_y, sums_3D = residual_norm_gradients(grads, kept, tokens, ctx.site, ctx.p, ctx.has_bias)
        return grad_x, grad_y, None, sums_3D[0], sums_3D[1] if ctx.has_bias else None, None, None, None, None


_residual_norm = direct(ResidualNorm)
