"""Linear layers of one input as one matmul.

Their weights stay parameters of their own: checkpoints and optimizer know nothing of it.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


def together(x: Tensor, layers: Sequence[nn.Linear]) -> tuple[Tensor, ...]:
    """What each of several layers makes of the same x (..., I), (..., O) each.

    Layers with hooks are called one by one, since these wait for that: ZeRO-3's gather the weights.
    """
    has_bias = {layer.bias is not None for layer in layers}
    if len(has_bias) > 1 or any(getattr(layer, hooks) for layer in layers for hooks in _HOOKS):
        return tuple(layer(x) for layer in layers)
    weights, biases = [layer.weight for layer in layers], [layer.bias for layer in layers if layer.bias is not None]
    out: tuple[Tensor, ...] = _Together.apply(x, len(layers), *weights, *biases)  # type: ignore[no-untyped-call]
    return out


class _Together(torch.autograd.Function):
    """x weight^T + bias of several weights, each a part of one; the gradients are parts of one as well."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, count: int, *parameters: Tensor) -> tuple[Tensor, ...]:
        weights, biases = parameters[:count], parameters[count:]
        weight = torch.cat(weights)
        ctx.save_for_backward(x, weight)
        ctx.widths, ctx.has_bias = [len(w) for w in weights], bool(biases)
        return torch.split(F.linear(x, weight, torch.cat(biases) if biases else None), ctx.widths, -1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        grad_RO = torch.cat([grad.flatten(0, -2) for grad in grads], 1)
        x_RI = x.flatten(0, -2)
        grad_x = torch.mm(grad_RO, weight).view(x.shape) if ctx.needs_input_grad[0] else None
        by_weights = torch.split(torch.mm(grad_RO.T, x_RI), ctx.widths)
        by_biases = torch.split(grad_RO.sum(0), ctx.widths) if ctx.has_bias else ()
        return grad_x, None, *by_weights, *by_biases
