"""Multi-head scaled dot-product attention (Vaswani et al., 2017, section 3.2), and the cache that search keeps."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from model.dropout import Dropout


class AttentionCache:
    """Keys and values of one attention, (N, H, L, K) each; grows by one position a step in self-attention."""

    def __init__(self) -> None:
        self.key: Tensor | None = None
        self.value: Tensor | None = None

    def append(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Add positions, and give all there are."""
        if self.key is not None and self.value is not None:
            key, value = torch.cat([self.key, key], dim=2), torch.cat([self.value, value], dim=2)
        self.key, self.value = key, value
        return key, value

    def select(self, rows: Tensor) -> None:
        """Keep these rows (N'), in this order: beams that go on, sentences that are not finished."""
        if self.key is not None and self.value is not None:
            self.key, self.value = self.key.index_select(0, rows), self.value.index_select(0, rows)


def attend(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, *, is_causal: bool, dropout: Dropout
) -> Tensor:
    """softmax(q k^T / sqrt(K) + bias) v.

    Args:
        query: (B, H, L, K). key, value: (B, H, S, K).
        bias: added to the scores, broadcastable to (B, H, L, S): 0 where attention may look, a large negative number
            where it may not. None where all may be looked at.
        is_causal: position l sees positions up to l only; then L == S and bias is None.
        dropout: on the attention weights.

    Returns:
        (B, H, L, K)
    """
    if query.device.type != "cpu":
        p = dropout.p if dropout.training else 0.0
        return F.scaled_dot_product_attention(query, key, value, attn_mask=bias, dropout_p=p, is_causal=is_causal)
    # On CPUs torch's flash kernel runs its bf16 backward five times slower than these three plain steps.
    scores = torch.matmul(query * query.shape[-1] ** -0.5, key.transpose(-1, -2))
    if is_causal:
        length = scores.shape[-1]
        bias = scores.new_full((length, length), torch.finfo(scores.dtype).min / 2).triu(1)
    if bias is not None:
        scores = scores + bias
    return torch.matmul(dropout(scores.softmax(-1)), value)


def padding_bias(is_padding: Tensor, dtype: torch.dtype) -> Tensor:
    """The bias (B, 1, 1, S) that hides padding, from a mask (B, S) that is True there."""
    bias = torch.zeros(is_padding.shape, dtype=dtype, device=is_padding.device)
    return bias.masked_fill(is_padding, torch.finfo(dtype).min / 2)[:, None, None, :]


class MultiHeadAttention(nn.Module):
    """Attention of `queries` to `memory` with `num_heads` heads."""

    def __init__(self, width: int, num_heads: int, dropout: float) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.head_width = width // num_heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.output = nn.Linear(width, width)
        self.dropout = Dropout(dropout)

    def forward(
        self,
        queries_BLD: Tensor,
        memory_BSD: Tensor,
        bias: Tensor | None = None,
        *,
        is_causal: bool = False,
        cache: AttentionCache | None = None,
        memory_is_fixed: bool = False,
    ) -> Tensor:
        """Attend from (B, L, D) to (B, S, D), or to what the cache holds; gives (B, L, D).

        Args:
            bias, is_causal: see `attend`.
            cache: keys and values of earlier calls, extended by those of this one.
            memory_is_fixed: the memory is the same at every call: its keys and values are computed at the first call
                and kept in the cache, and later calls ignore it.
        """
        query = self._split(self.query(queries_BLD))
        if cache is not None and memory_is_fixed and cache.key is not None and cache.value is not None:
            key, value = cache.key, cache.value
        else:
            key, value = self._split(self.key(memory_BSD)), self._split(self.value(memory_BSD))
            if cache is not None:
                key, value = cache.append(key, value)
        out = attend(query, key, value, bias, is_causal=is_causal, dropout=self.dropout)
        merged: Tensor = self.output(out.transpose(1, 2).flatten(2))
        return merged

    def _split(self, x_BLD: Tensor) -> Tensor:
        num_rows, length, _ = x_BLD.shape
        return x_BLD.view(num_rows, length, self.num_heads, self.head_width).transpose(1, 2)  # (B, H, L, K)
