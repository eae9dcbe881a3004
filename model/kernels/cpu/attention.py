"""Attention on a CPU: projections of one input as one product, and plain steps in place of a flash kernel."""

import torch
from torch import Tensor

from model.attention import AttentionCache, MultiHeadAttention, attention_weights
from model.kernels.cpu.linear import together


class CpuAttention(MultiHeadAttention):
    """MultiHeadAttention.

    torch's flash kernel for CPUs runs its bf16 backward pass five times slower than a product, a softmax and a product.
    """

    def project(self, queries_BLD: Tensor, memory_BSD: Tensor) -> tuple[Tensor, ...]:
        """See MultiHeadAttention."""
        if queries_BLD is memory_BSD:
            return together(memory_BSD, [self.query, self.key, self.value])
        return self.query(queries_BLD), *together(memory_BSD, [self.key, self.value])

    def attend(self, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, *, is_causal: bool) -> Tensor:
        """See MultiHeadAttention."""
        # a cache of bf16 is fp32: see `extend`
        weights = attention_weights(query.to(key.dtype), key, bias, is_causal=is_causal, scale=self.scale)
        return torch.matmul(self.dropout(weights), value).to(query.dtype)

    def extend(self, cache: AttentionCache, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Keeps and gives bf16 as fp32: in bf16 oneDNN makes a new kernel for the products of every length."""
        if key.dtype == torch.bfloat16:
            key, value = key.float(), value.float()
        return cache.append(key, value)
