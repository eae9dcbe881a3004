"""Residual, dropout and norm as one operator forward and one backward, with the bias of the linear layer before them.

The sums are kept between them, and a mean and a deviation of each row; masks are made again.
"""

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from model.dropout import Dropout
from model.kernels.cuda.attention import CudaAttention
from model.kernels.cuda.dropout import CudaDropout
from model.kernels.cuda.feed_forward import CudaFeedForward
from model.kernels.cuda.linear import FirstLinear, LastLinear, has_hooks
from model.kernels.cuda.operators import Operator, define
from model.residuals import PostNorm, PreNorm, Residual

Norm = nn.LayerNorm | nn.RMSNorm


class _Fused(Residual):
    """What both orders share.

    `link` sets the two; in tuples, or they would become modules of this one.
    """

    last: tuple[LastLinear, ...] = ()
    """The last layer of the sub-layer, if it is known."""
    first: tuple[FirstLinear, ...] = ()
    """The only layer that takes what the sub-layer is given, if there is one."""

    def summed_and_normed(
        self, x: Tensor, sublayer: Callable[[Tensor], Tensor], given: Tensor, norm: nn.Module
    ) -> tuple[Tensor, Tensor] | None:
        """x + dropout(sublayer(given)) and the norm of that; None where that is not one operator, and nothing was done.

        ZeRO-3 gathers parameters by hooks, when a module is called: a module with hooks is.
        """
        if not isinstance(norm, Norm) or norm.weight is None or norm.weight.dtype != x.dtype or has_hooks(norm):
            return None
        drawn = _tokens_of(self.dropout, x)
        if drawn is None or (isinstance(norm, nn.LayerNorm) and norm.bias is None):
            return None
        tokens, site, p = drawn
        last = next((layer for layer in self.last if layer.bias is not None and not has_hooks(layer)), None)
        first = next((layer for layer in self.first if given is x and not has_hooks(layer)), None)
        if last is not None:
            last.leaves_bias = True
        if first is not None:
            first.passes = torch.is_grad_enabled()
        try:
            y = sublayer(given)
        finally:
            if last is not None:
                last.leaves_bias = False
            if first is not None:
                first.passes = False
        if first is not None and first.passed is not None:
            x, first.passed = first.passed.view_as(x), None
        eps = torch.finfo(x.dtype).eps if norm.eps is None else norm.eps
        found: tuple[Tensor, Tensor] = ResidualNorm.apply(  # type: ignore[no-untyped-call]
            x, y, None if last is None else last.bias, norm.weight, getattr(norm, "bias", None), tokens, site, p, eps
        )
        return found


class CudaPostNorm(PostNorm, _Fused):
    """PostNorm."""

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """See PostNorm."""
        found = self.summed_and_normed(x, sublayer, x, self.norm)
        return super().forward(x, sublayer) if found is None else found[1]


class CudaPreNorm(PreNorm, _Fused):
    """PreNorm; what it gives is normed at once for the next one of the layer."""

    following: "tuple[CudaPreNorm, ...]" = ()
    handed: tuple[Tensor, Tensor] | None = None
    """What the one before gave, and its norm by ours."""

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """See PreNorm."""
        handed, self.handed = self.handed, None
        normed = handed[1] if handed is not None and handed[0] is x else self.norm(x)
        for following in self.following:
            found = self.summed_and_normed(x, sublayer, normed, following.norm)
            if found is not None:
                following.handed = found
                return found[0]
        out: Tensor = x + self.dropout(sublayer(normed))
        return out


_SUBLAYERS = (
    ("self_attention", "", "output"),
    ("cross_attention", "query", "output"),
    ("feed_forward", "inner", "outer"),
)
"""Names, and those of their first and last layers. Of self-attention three come first, and those are joined."""
L = TypeVar("L", bound=nn.Linear)


def _as(kind: type[L], linear: nn.Module | None) -> Iterator[L]:
    """The layer as one of ours, where it is a plain one."""
    if type(linear) is nn.Linear:
        linear.__class__ = kind
    if isinstance(linear, kind):
        yield linear


def fuse(sublayer: nn.Module, first: str, last: str) -> tuple[tuple[FirstLinear, ...], tuple[LastLinear, ...]]:
    """Let the first and the last layer of a sub-layer take over what stands beside them; those that can, or none."""
    return tuple(_as(FirstLinear, getattr(sublayer, first, None))), tuple(_as(LastLinear, getattr(sublayer, last)))


def link(layer: nn.Module) -> None:
    """Tell the residuals of a layer of encoder or decoder what comes before and after them."""
    before: CudaPreNorm | None = None
    for name, first, last in _SUBLAYERS:
        residual, sublayer = getattr(layer, f"{name}_residual", None), getattr(layer, name, None)
        if not isinstance(residual, _Fused):
            before = None
            continue
        if isinstance(sublayer, (CudaAttention, CudaFeedForward)):
            residual.first, residual.last = fuse(sublayer, first, last)
        if isinstance(residual, CudaPreNorm):
            if before is not None:
                before.following = (residual,)
            before = residual


def _tokens_of(dropout: Dropout, x: Tensor) -> tuple[Tensor | None, int, float] | None:
    """Where tokens stand, the dropout's number and its probability; None where it is drawn from a generator."""
    if not dropout.training or dropout.p == 0:
        return None, 0, 0.0
    layout = dropout.current.layout if isinstance(dropout, CudaDropout) else None
    if layout is None or not isinstance(dropout, CudaDropout):
        return None
    tokens_N4 = layout.side(dropout.side).places
    return (tokens_N4, dropout.site, dropout.p) if x.shape[:-1].numel() == tokens_N4.shape[0] else None


class ResidualNorm(torch.autograd.Function):
    """x + dropout(y + bias), and its norm: a layer norm where there is a bias of it, else by the root mean square."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        y: Tensor,
        linear_bias: Tensor | None,
        weight: Tensor,
        bias: Tensor | None,
        tokens: Tensor | None,
        site: int,
        p: float,
        eps: float,
    ) -> tuple[Tensor, Tensor]:
        """The sum, and its norm."""
        x_ND, y_ND = x.flatten(0, -2).contiguous(), y.flatten(0, -2).contiguous()
        summed, normed, mean, deviation = residual_norm(x_ND, y_ND, linear_bias, weight, bias, tokens, site, p, eps)
        ctx.save_for_backward(summed, mean, deviation, weight, tokens)
        ctx.site, ctx.p, ctx.set = site, p, (linear_bias is not None, bias is not None)
        ctx.set_materialize_grads(False)
        return summed.view_as(x), normed.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        """By what was given; of the two gradients one may be None."""
        summed, mean, deviation, weight, tokens = ctx.saved_tensors
        has_linear_bias, has_bias = ctx.set
        by_sum, by_norm = (None if g is None else g.flatten(0, -2).contiguous() for g in grads)
        if by_norm is None:
            by_norm = torch.zeros_like(summed)
        by_x, by_y, sums_3D = residual_norm_backward(
            by_norm, by_sum, summed, mean, deviation, weight, tokens, ctx.site, ctx.p, has_bias
        )
        shape = next(g.shape for g in grads if g is not None)
        by_x, by_y = by_x.view(shape), by_y.view(shape) if ctx.p else by_x.view(shape)
        by_linear = sums_3D[2] if has_linear_bias else None
        return by_x, by_y, by_linear, sums_3D[0], sums_3D[1] if has_bias else None, None, None, None, None


def _plain_forward(
    x: Tensor,
    y: Tensor,
    linear_bias: Tensor | None,
    weight: Tensor,
    bias: Tensor | None,
    tokens: Tensor | None,
    site: int,
    p: float,
    eps: float,
) -> tuple[Tensor, ...]:
    y = y if linear_bias is None else y + linear_bias
    summed = x + (y if tokens is None else torch.ops.zeromt.drop(y, tokens, site, p))
    s = summed.float()
    mean = s.mean(-1) if bias is not None else s.new_zeros(s.shape[0])
    s = s - mean[:, None]
    deviation = (s.square().mean(-1) + eps).rsqrt()
    normed = s * deviation[:, None] * weight.float()
    return summed, (normed if bias is None else normed + bias.float()).to(x.dtype), mean, deviation


def _plain_backward(
    by_norm: Tensor,
    by_sum: Tensor | None,
    summed: Tensor,
    mean: Tensor,
    deviation: Tensor,
    weight: Tensor,
    tokens: Tensor | None,
    site: int,
    p: float,
    is_centred: bool,
) -> tuple[Tensor, ...]:
    grad, normed = by_norm.float(), (summed.float() - mean[:, None]) * deviation[:, None]
    scaled = grad * weight.float()
    inner = scaled - normed * (scaled * normed).mean(-1, keepdim=True)
    if is_centred:
        inner = inner - scaled.mean(-1, keepdim=True)
    by_x = inner * deviation[:, None]
    if by_sum is not None:
        by_x = by_x + by_sum.float()
    by_y = by_x if tokens is None else torch.ops.zeromt.drop(by_x, tokens, site, p)
    sums = torch.stack([(grad * normed).sum(0), grad.sum(0), by_y.sum(0)]).to(weight.dtype)
    return by_x.to(summed.dtype), by_y.to(summed.dtype) if tokens is not None else summed.new_empty(0), sums


def _fake_forward(x: Tensor, *_: Any) -> tuple[Tensor, ...]:
    numbers = x.new_empty(x.shape[0], dtype=torch.float32)
    return torch.empty_like(x), torch.empty_like(x), numbers, torch.empty_like(numbers)


def _fake_backward(
    by_norm: Tensor, by_sum: Tensor | None, summed: Tensor, mean: Tensor, deviation: Tensor, weight: Tensor,
    tokens: Tensor | None, *_: Any,
) -> tuple[Tensor, ...]:  # fmt: skip
    by_y = summed.new_empty(0) if tokens is None else torch.empty_like(summed)
    return torch.empty_like(summed), by_y, weight.new_empty((3, weight.shape[0]))


residual_norm = define(
    "residual_norm(Tensor x, Tensor y, Tensor? linear_bias, Tensor weight, Tensor? bias, Tensor? tokens, int site, "
    "float p, float eps) -> (Tensor summed, Tensor normed, Tensor mean, Tensor deviation)",
    _plain_forward,
    cost=Operator(launches=1),
    fake=_fake_forward,
)
"""x + dropout(y + linear_bias), in (N, D) and in the precision of x; of that a layer norm where there is a bias, else
one by the root mean square; in fp32, of each row, the mean (0 there) and one over the deviation.

Without tokens (N, 4), see `model.layout.Side`, nothing is dropped.
"""
residual_norm_backward = define(
    "residual_norm_backward(Tensor by_norm, Tensor? by_sum, Tensor summed, Tensor mean, Tensor deviation, "
    "Tensor weight, Tensor? tokens, int site, float p, bool is_centred) -> (Tensor by_x, Tensor by_y, Tensor sums)",
    _plain_backward,
    cost=Operator(launches=2),  # the gradients of some rows and sums of those, then the sums of all
    fake=_fake_backward,
)
"""The gradients by x and y (N, D), and in (3, D) those by weight, bias and linear bias. Without tokens that by y is
that by x, and what is given for it is empty."""
