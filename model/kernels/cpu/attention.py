"""Attention on a CPU: one matmul for all projections of the same input, and plain steps instead of a flash kernel."""

import torch
from torch import Tensor
from typing_extensions import override

from model.attention import AttentionCache, MultiHeadAttention, attention_weights
from model.kernels.cpu.linear import joined_linear


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
