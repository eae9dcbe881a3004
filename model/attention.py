"""Multi-head scaled dot-product attention (Vaswani et al., 2017, section 3.2), and the key-value cache of a search."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from model.sublayers import Dropout

CACHE_MULTIPLE = 8
"""A cache allocates positions in multiples of this."""


class AttentionCache:
    """Keys and values of one attention layer, (N, key heads, L, K) each. In self-attention each step adds a position.

    The tensors have spare positions, so that new ones are written in place and matmuls need no copy. `select` only
    notes the chosen rows; they move when the next position is added, in one pass over memory instead of two.
    """

    def __init__(self) -> None:
        self._key: Tensor | None = None  # (N, heads, C, K): the first `length` positions are filled
        self._value: Tensor | None = None
        self._rows: Tensor | None = None  # selected, not yet moved
        self.length = 0
        """Number of positions in the cache."""

    @property
    def key(self) -> Tensor | None:
        """All keys so far; None when the cache is empty."""
        held = self.held()
        return None if held is None else held[0]

    @property
    def value(self) -> Tensor | None:
        """All values so far; None when the cache is empty."""
        held = self.held()
        return None if held is None else held[1]

    def held(self) -> tuple[Tensor, Tensor] | None:
        """All keys and all values so far; None when the cache is empty."""
        if self._key is None or self._value is None:
            return None
        if self._rows is not None:
            self._key, self._value = self._key.index_select(0, self._rows), self._value.index_select(0, self._rows)
            self._rows = None
        return self._key[:, :, : self.length], self._value[:, :, : self.length]

    def append(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Add positions; returns all keys and all values."""
        self._key, self._value = self._extended(self._key, key), self._extended(self._value, value)
        self._rows, self.length = None, self.length + key.shape[2]
        return self._key[:, :, : self.length], self._value[:, :, : self.length]

    def select(self, rows: Tensor) -> None:
        """Keep these rows (N'), in this order: the surviving hypotheses, or the unfinished sentences."""
        if self._key is not None:
            self._rows = rows if self._rows is None else self._rows[rows]

    def _extended(self, held: Tensor | None, new: Tensor) -> Tensor:
        """The selected rows of `held`, followed by the positions of `new`; written in place if they fit."""
        length = self.length + new.shape[2]
        if held is None or self._rows is not None or length > held.shape[2]:
            buffer = new.new_empty((*new.shape[:2], -(-length // CACHE_MULTIPLE) * CACHE_MULTIPLE, new.shape[3]))
            if held is not None and self._rows is not None:
                torch.index_select(held[:, :, : self.length], 0, self._rows, out=buffer[:, :, : self.length])
            elif held is not None:
                buffer[:, :, : self.length] = held[:, :, : self.length]
            held = buffer
        held[:, :, self.length : length] = new
        return held


def attention_weights(
    query: Tensor, key: Tensor, bias: Tensor | None, *, is_causal: bool, scale: float | None = None
) -> Tensor:
    """softmax(scale q k^T + bias), in (B, H, L, S). See `attend`."""
    # the query has fewer elements than the scores
    scores = torch.matmul(query * (query.shape[-1] ** -0.5 if scale is None else scale), key.transpose(-1, -2))
    if is_causal:
        length = scores.shape[-1]
        bias = scores.new_full((length, length), torch.finfo(scores.dtype).min / 2).triu(1)
    if bias is not None:
        scores = scores + bias
    return scores.softmax(-1)


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    *,
    is_causal: bool,
    dropout: Dropout,
    scale: float | None = None,
) -> Tensor:
    """softmax(scale q k^T + bias) v.

    Args:
        query: (B, H, L, K). key, value: (B, H, S, K).
        bias: added to the scores, broadcastable to (B, H, L, S): 0 where attention is allowed, a large negative number
            where it is masked. None: nothing is masked.
        is_causal: position l attends to positions up to l only; then L == S and bias is None.
        dropout: on the attention weights.
        scale: 1 / sqrt(K) unless given.

    Returns:
        (B, H, L, K)
    """
    p = dropout.p if dropout.training else 0.0
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask=bias, dropout_p=p, is_causal=is_causal, scale=scale
    )


def padding_bias(is_padding: Tensor, dtype: torch.dtype) -> Tensor:
    """The bias (B, 1, 1, S) that masks padding, from a mask (B, S) that is True at padding."""
    bias = torch.zeros(is_padding.shape, dtype=dtype, device=is_padding.device)
    return bias.masked_fill(is_padding, torch.finfo(dtype).min / 2)[:, None, None, :]


class MultiHeadAttention(nn.Module):
    """Multi-head attention of queries to a memory (in self-attention the same sequence).

    Args:
        width: of the model.
        heads: number and width of the heads, biases, scale and dropout: a `model.components.multi_head.MultiHead`.
        rotation: rotates queries and keys by position (rotary positions); only in self-attention.
    """

    def __init__(self, width: int, heads: Any, rotation: nn.Module | None = None) -> None:
        super().__init__()
        self.head_width = heads.width_of_heads(width)
        query_width, memory_width = heads.query_width(width), heads.memory_width(width)
        self.queries_per_key = heads.num_heads // heads.actual_num_kv_heads
        self.scale = {"head_width": self.head_width, "model_width": width}[heads.scale] ** -0.5
        self.query = nn.Linear(width, query_width, bias=heads.bias)
        self.key = nn.Linear(width, memory_width, bias=heads.bias)
        self.value = nn.Linear(width, memory_width, bias=heads.bias)
        self.output = nn.Linear(query_width, width, bias=heads.output_bias)
        self.rotation = rotation
        self.dropout = Dropout(heads.dropout)

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
        """Attend from (B, L, D) to (B, S, D) or to the cache; returns (B, L, D).

        Args:
            bias, is_causal: see `attend`.
            cache: keys and values of earlier calls, to which this call adds its own.
            memory_is_fixed: the memory is the same at every call. Its keys and values are computed at the first call
                and cached; later calls ignore `memory_BSD`.
        """
        start = 0 if cache is None or memory_is_fixed else cache.length
        if cache is not None and memory_is_fixed and (held := cache.held()) is not None:
            query, *_ = self.project(queries_BLD, queries_BLD[:, :0])
            key, value = held
        else:
            query, key, value = self.project(queries_BLD, memory_BSD)
            key, value = self._split(key), self._split(value)
            if self.rotation is not None:
                key = self.rotation(key, start)
            if cache is not None:
                key, value = self.extend(cache, key, value)
        query = self._split(query)
        if self.rotation is not None:
            query = self.rotation(query, start)
        if self.queries_per_key != 1:
            key, value = self._for_each_query(key), self._for_each_query(value)
        out = self.attend(query, key, value, bias, is_causal=is_causal)
        merged: Tensor = self.output(out.transpose(1, 2).flatten(2))
        return merged

    def project(self, queries_BLD: Tensor, memory_BSD: Tensor) -> tuple[Tensor, ...]:
        """Queries (B, L, H K), keys and values (B, S, key heads times K): the one place where they are made.

        A search that has the keys and values already gives a memory of S = 0.
        """
        if not memory_BSD.shape[1]:
            return self.query(queries_BLD), memory_BSD, memory_BSD
        return self.query(queries_BLD), self.key(memory_BSD), self.value(memory_BSD)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, *, is_causal: bool) -> Tensor:
        """The function `attend` with this module's dropout and scale, (B, H, L, K)."""
        return attend(query, key, value, bias, is_causal=is_causal, dropout=self.dropout, scale=self.scale)

    def extend(self, cache: AttentionCache, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Add positions to a cache; returns all its keys and values."""
        return cache.append(key, value)

    def _split(self, x_BLD: Tensor) -> Tensor:
        num_rows, length, width = x_BLD.shape
        return x_BLD.view(num_rows, length, width // self.head_width, self.head_width).transpose(1, 2)  # (B, H, L, K)

    def _for_each_query(self, x_BHSK: Tensor) -> Tensor:
        """Repeat key or value heads to one for each query head."""
        return x_BHSK.repeat_interleave(self.queries_per_key, dim=1)
