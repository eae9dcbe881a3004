"""Training on a CPU: cheap dropout, feed-forward as one function of autograd, and a loss that fits the cache."""

from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from typing_extensions import override

from model.loss import LossSteps
from model.sublayers import Dropout, FeedForward

CHUNK_ELEMENTS = 1 << 24
"""Logits in memory at once: 64 MB in fp32, unless `MIN_CHUNK_ROWS` needs more."""
MIN_CHUNK_ROWS = 256
"""With fewer rows, adding a chunk's gradient to that of the whole weight takes longer than the matmul."""
BLOCK_ELEMENTS = 1 << 19
"""Logits that become probabilities at once: 2 MB in fp32, which fits the cache of a core."""
MIN_MACS = 1 << 24
"""Multiply-adds of a matmul from which the feed-forward sub-layer is one function."""
_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
_PATTERNS = 1 << 16


class CpuDropout(Dropout):
    """Dropout with 16 random bits for each element.

    torch draws a random number for each element, and its mask operators handle one element at a time. Here 16 bits are
    read as a bf16 number, and an element is zeroed if its number is not above a threshold, in one vectorised pass. So
    `p` is rounded to the nearest possible threshold: an error of 2^-17, or 2^-9 near 0.5. The scale matches the rounded
    `p`. torch's generator gives the seed of the noise. fp16 uses torch's own dropout.
    """

    @property
    def threshold(self) -> float:
        """Elements whose noise is not above this are dropped."""
        return rounded(self.p)[0]

    @property
    def scale(self) -> float:
        """Factor for the kept elements."""
        return 1 / (1 - rounded(self.p)[1])

    @override
    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0 or x.dtype not in (torch.float32, torch.bfloat16):
            return super().forward(x)
        # zero where the noise is not above the threshold, else x; its backward pass masks the gradient in the same way
        kept: Tensor = torch.ops.aten.threshold_backward(x, self.noise(x), self.threshold)
        return kept.mul_(self.scale)

    def noise(self, x: Tensor) -> Tensor:
        """New noise in the shape and precision of `x`, to compare with `threshold`."""
        seed = torch.empty((), dtype=torch.int64).random_()
        # SFC64 is 3 to 5 times as fast as torch's generator
        words = torch.from_numpy(np.random.SFC64(int(seed)).random_raw(x.numel() // 4 + 1).view(np.int64))
        return words.view(torch.bfloat16)[: x.numel()].view(x.shape).to(x.dtype)


@lru_cache
def rounded(p: float) -> tuple[float, float]:
    """The threshold for `p`, and the fraction of bf16 bit patterns that are not above it: about `p`, never 0 or 1.

    NaN patterns compare as false, so their elements are kept. Subnormal numbers are not used as thresholds, because
    some processors flush them to 0, which would change the fraction.
    """
    numbers = torch.arange(_PATTERNS, device="cpu").to(torch.int16).view(torch.bfloat16).float()
    numbers = numbers[~numbers.isnan()].sort().values
    thresholds = numbers[numbers.abs() >= torch.finfo(torch.bfloat16).tiny]
    fractions = torch.searchsorted(numbers, thresholds, right=True).double() / _PATTERNS
    nearest = int((fractions - p).abs().argmin())
    return float(thresholds[nearest]), float(fractions[nearest])


class CpuFeedForward(FeedForward):
    """FeedForward for CPUs: large matmuls and the ReLU between them are one autograd function."""

    @override
    def forward(self, x: Tensor) -> Tensor:
        if self.activation is not F.relu or not self._is_one_function(x):
            return super().forward(x)
        dropout = self.dropout if self.dropout.training and self.dropout.p > 0 else None
        out: Tensor = _ReluFeedForward.apply(  # type: ignore[no-untyped-call]
            x, self.inner.weight, self.inner.bias, self.outer.weight, self.outer.bias, dropout
        )
        return out

    def _is_one_function(self, x: Tensor) -> bool:
        """For large matmuls in training; layers with hooks must be called, as those of ZeRO-3 gather the weights."""
        if not torch.is_grad_enabled():
            return False
        layers = (self.inner, self.outer)
        if any(getattr(layer, hooks) for layer in layers for hooks in _HOOKS):
            return False
        is_known = x.dtype in (torch.float32, torch.bfloat16) and all(layer.weight.dtype == x.dtype for layer in layers)
        return is_known and x.numel() * len(self.inner.weight) >= MIN_MACS


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
        x_RI = x.flatten(0, -2)
        hidden_RH = F.linear(x_RI, inner, inner_bias)
        ctx.scale = 1.0 if dropout is None else dropout.scale
        if dropout is not None:
            _zero_(hidden_RH, where=dropout.noise(hidden_RH), is_at_most=dropout.threshold)
            outer = outer * ctx.scale  # equals scaling the hidden states, which have more elements
        hidden_RH.relu_()
        ctx.save_for_backward(x_RI, inner, hidden_RH, outer)
        return F.linear(hidden_RH, outer, outer_bias).view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x_RI, inner, hidden_RH, outer = ctx.saved_tensors
        grad_RO = grads[0].flatten(0, -2)
        needs_x, needs_inner, needs_inner_bias, needs_outer, needs_outer_bias, _ = ctx.needs_input_grad
        grad_outer = torch.mm(grad_RO.T, hidden_RH).mul_(ctx.scale) if needs_outer else None
        grad_RH = torch.mm(grad_RO, outer)
        _zero_(grad_RH, where=hidden_RH, is_at_most=0.0)
        return (
            torch.mm(grad_RH, inner).view(*grads[0].shape[:-1], -1) if needs_x else None,
            torch.mm(grad_RH.T, x_RI) if needs_inner else None,
            grad_RH.sum(0) if needs_inner_bias else None,
            grad_outer,
            grad_RO.sum(0) if needs_outer_bias else None,
            None,
        )


def _zero_(x: Tensor, *, where: Tensor, is_at_most: float) -> None:
    torch.ops.aten.threshold_backward.grad_input(x, where, is_at_most, grad_input=x)


class CpuLossSteps(LossSteps):
    """The loss without its padding rows, in blocks that fit the cache."""

    @override
    def sums(
        self, hidden_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None, targets_N: Tensor, scales_N: Tensor | None,
        gradient_scale: Tensor | None, smoothing: float, padding_id: int, with_grad: bool,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        rows = (targets_N != padding_id).nonzero()[:, 0]
        hidden_ND, targets_N = hidden_ND.index_select(0, rows), targets_N.index_select(0, rows)
        scales_N = None if scales_N is None else scales_N.index_select(0, rows)
        tensors = hidden_ND, weight_VD, bias_V, targets_N, scales_N, gradient_scale
        return super().sums(*tensors, smoothing, padding_id, with_grad)

    @override
    def chunk_rows(self, num_rows: int, weight_VD: Tensor) -> int:
        most = max(MIN_CHUNK_ROWS, CHUNK_ELEMENTS // len(weight_VD))
        num_chunks = max(1, -(-num_rows // most))
        return max(1, -(-num_rows // num_chunks))

    @override
    def cross_entropy_(self, *given: Any) -> None:
        """Works on some rows at a time, which fit the cache."""
        logits_RV, targets_R, losses_2R, *rest, scales_R = given
        step = max(1, BLOCK_ELEMENTS // logits_RV.shape[1])
        for begin in range(0, len(logits_RV), step):
            rows = slice(begin, begin + step)
            scales = None if scales_R is None else scales_R[rows]
            super().cross_entropy_(logits_RV[rows], targets_R[rows], losses_2R[:, rows], *rest, scales)


CPU_STEPS = CpuLossSteps()
