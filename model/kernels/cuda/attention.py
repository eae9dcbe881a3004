"""Attention for packed rows, one after the other without padding, and one matmul for all projections of the same input.

Shapes: N queries and M keys in R rows, H heads of width K.
"""

import functools

import torch
from torch import Tensor
from torch.nn import functional as F
from typing_extensions import override

from model.attention import AttentionCache, MultiHeadAttention
from model.kernels.cuda.linear import joined_linear
from model.layout import Current, Side, SideName

_HALVES = (torch.float16, torch.bfloat16)
_HEAD_MULTIPLE, _WIDEST_HEAD = 8, 256
_MIN_CAPABILITY = (8, 0)
_SMALL_SHARED_MEMORY, _WIDTHS_WITHOUT_BACKWARD = ((8, 6), (8, 7), (8, 9), (12, 0), (12, 1)), range(193, 225)
"""Compute capabilities with less shared memory, and the head widths without a backward pass there (sdp_utils.cpp)."""


def packed_attention(
    query: Tensor, key: Tensor, value: Tensor, queries: Side, keys: Side, *, is_causal: bool, scale: float
) -> Tensor:
    """softmax(scale q k^T) v within each row.

    Uses torch's flash attention for rows of different lengths (Dao, 2023) on a GPU in half precision, else
    `plain_attention`.

    Args:
        query: (N, H, K). key, value: (M, H, K).
        queries, keys: the positions of their tokens.
        is_causal: position l of a row attends to positions up to l only; then both sides are the same.
        scale: of the scores.

    Returns:
        (N, H, K)
    """
    has_flash = query.device.type != "cpu" and _has_varlen(query.device, query.dtype, query.shape[-1])
    way = flash_attention if has_flash else plain_attention
    return way(query, key, value, queries, keys, is_causal=is_causal, scale=scale)


def flash_attention(
    query: Tensor, key: Tensor, value: Tensor, queries: Side, keys: Side, *, is_causal: bool, scale: float
) -> Tensor:
    """`packed_attention` by the operator below `torch.nn.attention.varlen`, without the steps that torch makes before
    it and the zeros that it fills; torch's C++ knows its gradient."""
    out: Tensor = torch.ops.aten._flash_attention_forward(
        *(query, key, value, queries.bounds, keys.bounds, queries.padded_longest, keys.padded_longest),
        *(0.0, is_causal, False),
        scale=scale,
        window_size_left=-1,
        window_size_right=0 if is_causal else -1,
    )[0]
    return out


def plain_attention(
    query: Tensor, key: Tensor, value: Tensor, queries: Side, keys: Side, *, is_causal: bool, scale: float
) -> Tensor:
    """`packed_attention` over all rows at once, with a mask (N, M) that hides the other rows."""
    rows = [_rows(side, x.shape[0]) for side, x in ((queries, query), (keys, key))]
    is_seen = rows[0][:, None] == rows[1]
    if is_causal:
        is_seen = is_seen & (queries.positions[:, None] >= keys.positions)
    q, k, v = (x.transpose(0, 1)[None] for x in (query, key, value))  # (1, H, N, K)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=is_seen, scale=scale)[0].transpose(0, 1)


def why_not_varlen(device: torch.device, dtype: torch.dtype, head_width: int) -> str | None:
    """Why a device has no attention for rows of different lengths; None if it has."""
    if dtype not in _HALVES:
        return "attention without padding needs bf16 or fp16"
    if head_width % _HEAD_MULTIPLE or head_width > _WIDEST_HEAD:
        return f"heads are {head_width} wide; attention without padding needs a multiple of 8 up to {_WIDEST_HEAD}"
    capability = torch.cuda.get_device_capability(device) if device.type == "cuda" else None
    if capability is not None and capability < _MIN_CAPABILITY:
        return "attention without padding needs a GPU of compute capability 8.0 or newer"
    if capability in _SMALL_SHARED_MEMORY and head_width in _WIDTHS_WITHOUT_BACKWARD:
        return f"heads are {head_width} wide, for which this GPU has no backward pass of attention without padding"
    return None


@functools.cache  # it takes too long for every attention call
def _has_varlen(device: torch.device, dtype: torch.dtype, head_width: int) -> bool:
    return why_not_varlen(device, dtype, head_width) is None


def _rows(side: Side, num_tokens: int) -> Tensor:
    """(N): the row of each token."""
    assert side.bounds is not None
    return torch.bucketize(torch.arange(num_tokens, device=side.bounds.device), side.bounds[1:], right=True)


class CudaAttention(MultiHeadAttention):
    """MultiHeadAttention; in a packed pass each row attends within its own tokens.

    `use` of this package sets the four attributes.
    """

    current: Current
    name: str
    """Name of the module, the key of its projections in `Current.projections`."""
    queries_side: SideName
    memory_side: SideName

    @override
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
        """(1, N, D) to (1, N, D) in a packed pass."""
        layout = self.current.layout
        if layout is None or not layout.is_packed:
            return super().forward(
                queries_BLD, memory_BSD, bias, is_causal=is_causal, cache=cache, memory_is_fixed=memory_is_fixed
            )
        queries, keys = layout.side(self.queries_side), layout.side(self.memory_side)
        width = self.head_width
        query, key, value = self.project(queries_BLD, memory_BSD)
        query, key = query.view(query.shape[1], -1, width), key.view(key.shape[1], -1, width)  # (N, H, K)
        value = value.view(key.shape)
        if self.rotates:
            query, key = self._rotate(query, queries), self._rotate(key, keys)
        if self.queries_per_key != 1:
            key, value = (x.repeat_interleave(self.queries_per_key, dim=1) for x in (key, value))
        out = packed_attention(query, key, value, queries, keys, is_causal=is_causal, scale=self.scale)
        merged: Tensor = self.output(out.flatten(1).unsqueeze(0))
        return merged

    def _rotate(self, x_NHK: Tensor, side: Side) -> Tensor:
        rotated: Tensor = self.rotation(x_NHK.transpose(0, 1).unsqueeze(0), side.positions)
        return rotated.squeeze(0).transpose(0, 1)

    @override
    def project(self, queries_BLD: Tensor, memory_BSD: Tensor) -> tuple[Tensor, ...]:
        joined = self.current.projections.get(self.name)
        if queries_BLD is memory_BSD:
            return joined(memory_BSD) if joined else joined_linear(memory_BSD, [self.query, self.key, self.value])
        if not memory_BSD.shape[1]:
            return super().project(queries_BLD, memory_BSD)
        both = joined(memory_BSD) if joined else joined_linear(memory_BSD, [self.key, self.value])
        return self.query(queries_BLD), *both
