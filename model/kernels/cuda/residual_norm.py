"""Bias, dropout, residual connection and norm as one operator forward and one backward, and their plain twins."""

from collections.abc import Sequence

import torch
from torch import Tensor

from model.kernels.cuda.operators import define


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
    s = summed.float().flatten(0, -2)
    mean = s.mean(-1) if bias is not None else s.new_zeros(s.shape[0])
    s = s - mean[:, None]
    rstd = (s.square().mean(-1) + eps).rsqrt()
    normed = s * rstd[:, None] * weight.float()
    normed = normed if bias is None else normed + bias.float()
    return summed, normed.to(x.dtype).view_as(x), mean, rstd


def _plain_backward(
    grad_normed: Tensor,
    grad_summed: Tensor | None,
    summed: Tensor,
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor,
    tokens: Tensor | None,
    site: int,
    p: float,
    is_centred: bool,
) -> tuple[Tensor, ...]:
    shape, summed, grad = summed.shape, summed.flatten(0, -2), grad_normed.float().flatten(0, -2)
    normed = (summed.float() - mean[:, None]) * rstd[:, None]
    scaled = grad * weight.float()
    inner = scaled - normed * (scaled * normed).mean(-1, keepdim=True)
    if is_centred:
        inner = inner - scaled.mean(-1, keepdim=True)
    grad_x = inner * rstd[:, None]
    if grad_summed is not None:
        grad_x = grad_x + grad_summed.float().flatten(0, -2)
    grad_y = grad_x if tokens is None else torch.ops.zeromt.drop(grad_x, tokens, site, p)
    sums = torch.stack([(grad * normed).sum(0), grad.sum(0), grad_y.sum(0)]).to(weight.dtype)
    grad_x = grad_x.to(summed.dtype).view(shape)
    return grad_x, summed.new_empty(0) if tokens is None else grad_y.to(summed.dtype).view(shape), sums


residual_norm = define(
    "residual_norm(Tensor x, Tensor y, Tensor? linear_bias, Tensor weight, Tensor? bias, Tensor? tokens, int site, "
    "float p, float eps) -> (Tensor summed, Tensor normed, Tensor mean, Tensor rstd)",
    _plain_forward,
    launches=1,
)
"""summed = x + dropout(y + linear_bias), (..., D) of N rows, in the precision of x; normed = its layer norm, or its RMS
norm without `bias`; mean (0 for RMS norm) and rstd (reciprocal standard deviation) of each row, (N) in fp32.

`tokens` is `model.layout.Side.places` (N, 4); without it nothing is dropped.
"""
residual_norm_backward = define(
    "residual_norm_backward(Tensor grad_normed, Tensor? grad_summed, Tensor summed, Tensor mean, Tensor rstd, "
    "Tensor weight, Tensor? tokens, int site, float p, bool is_centred) -> (Tensor grad_x, Tensor grad_y, Tensor sums)",
    _plain_backward,
    launches=2,  # gradients with partial sums for some rows each, then the total sums
)
"""Gradients of x and y (..., D), and stacked (3, D) those of weight, bias and linear bias. Without tokens the gradient
of y equals that of x, and an empty tensor is returned for it."""


def residual_norm_gradients(
    grads: Sequence[Tensor | None], kept: Sequence[Tensor], tokens: Tensor | None, site: int, p: float, has_bias: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """`residual_norm_backward` for a function of autograd: the gradients of x and y, and those of the parameters.

    Args:
        grads: of the sum and of its norm; one of the two may be None.
        kept: sum, mean and rstd of `residual_norm`, and the norm's weight.
        tokens, site, p: as of `residual_norm`.
        has_bias: whether it is a layer norm.
    """
    grad_summed, grad_normed = grads
    grad_summed = None if grad_summed is None else grad_summed.contiguous()
    grad_normed = torch.zeros_like(kept[0]) if grad_normed is None else grad_normed.contiguous()
    grad_x, grad_y, sums_3D = residual_norm_backward(grad_normed, grad_summed, *kept, tokens, site, p, has_bias)
    return grad_x, grad_y if p else grad_x, sums_3D
