"""The layers of a Transformer on a CPU.

Dropout is cheap, the feed-forward sub-layer with ReLU is one autograd function for large matmuls, and attention has one
matmul for all projections of the same input, and plain steps instead of a flash kernel.
"""

from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from typing_extensions import override

from model.attention import AttentionCache, MultiHeadAttention, attention_weights
from model.dropout import Dropout
from model.feed_forward import FeedForward
from model.kernels.cpu.linear import as_rows, can_join, joined_linear, multiply, weight_gradient, with_rows

_PATTERNS = 1 << 16
_LIBRARY = torch.library.Library("zeromt", "FRAGMENT")  # type: ignore[no-untyped-call]
_LIBRARY.define("random_words(Tensor seed, SymInt count) -> Tensor")  # type: ignore[no-untyped-call]


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
        words: Tensor = torch.ops.zeromt.random_words(seed, x.numel() // 4 + 1)
        return words.view(torch.bfloat16)[: x.numel()].view(x.shape).to(x.dtype)


@lru_cache
def rounded(p: float) -> tuple[float, float]:
    """The threshold for `p`, and the fraction of bf16 bit patterns that are not above it: about `p`, never 0 or 1.

    NaN patterns compare as false, so their elements are kept. Subnormal numbers are no thresholds, because some
    processors flush them to 0, which would change the fraction.
    """
    numbers = torch.arange(_PATTERNS, device="cpu").to(torch.int16).view(torch.bfloat16).float()
    numbers = numbers[~numbers.isnan()].sort().values
    thresholds = numbers[numbers.abs() >= torch.finfo(torch.bfloat16).tiny]
    fractions = torch.searchsorted(numbers, thresholds, right=True).double() / _PATTERNS
    nearest = int((fractions - p).abs().argmin())
    return float(thresholds[nearest]), float(fractions[nearest])


@torch.library.impl(_LIBRARY, "random_words", "CPU")
def _random_words(seed: Tensor, count: int) -> Tensor:
    """(count,) int64 of random bits from SFC64, which is 3 to 5 times as fast as torch's generator."""
    return torch.from_numpy(np.random.SFC64(int(seed)).random_raw(count).view(np.int64))


@torch.library.register_fake("zeromt::random_words", lib=_LIBRARY)  # type: ignore[untyped-decorator]
def _(seed: Tensor, count: int) -> Tensor:
    return seed.new_empty(count)


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


class CpuAttention(MultiHeadAttention):
    """MultiHeadAttention for CPUs.

    The bf16 backward pass of torch's flash kernel for CPUs is five times slower than matmul, softmax, matmul.
    """

    @override
    def project(self, queries_BLD: Tensor, memory_BSD: Tensor) -> tuple[Tensor, ...]:
        if queries_BLD is memory_BSD:
            return joined_linear(memory_BSD, [self.query, self.key, self.value])
        if not memory_BSD.shape[1]:
            return super().project(queries_BLD, memory_BSD)
        return self.query(queries_BLD), *joined_linear(memory_BSD, [self.key, self.value])

    @override
    def attend(self, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, *, is_causal: bool) -> Tensor:
        # for bf16 the cache holds fp32: see `extend`
        weights = attention_weights(query.to(key.dtype), key, bias, is_causal=is_causal, scale=self.scale)
        return torch.matmul(self.dropout(weights), value).to(query.dtype)

    def extend(self, cache: AttentionCache, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Stores bf16 as fp32, because in bf16 oneDNN would build a new kernel for every length."""
        if key.dtype == torch.bfloat16:
            key, value = key.float(), value.float()
        return cache.append(key, value)
