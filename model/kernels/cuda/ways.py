"""The implementations of attention within packed rows, and which a device has.

Shapes: N queries and M keys in R rows, H heads of width K.
"""

import functools
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from model.layout import LayoutKind, Side

WAYS: tuple[LayoutKind, ...] = ("flash", "efficient")
_HALVES = (torch.float16, torch.bfloat16)
_WIDEST_FLASH = 256
_SINCE: dict[LayoutKind, tuple[int, int]] = {"flash": (8, 0), "efficient": (5, 0)}
_BF16_SINCE = (8, 0)
_SMALL_SHARED_MEMORY, _WIDTHS_WITHOUT_BACKWARD = ((8, 6), (8, 7), (8, 9), (12, 0), (12, 1)), range(193, 225)
"""Compute capabilities with less shared memory, and the head widths without a backward pass there (sdp_utils.cpp)."""
_CAUSAL = 1
"""`custom_mask_type` of the efficient kernels: position l attends to positions up to l, counted within its row."""


def packed_attention(
    way: LayoutKind,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    queries: Side,
    keys: Side,
    *,
    is_causal: bool,
    scale: float,
) -> Tensor:
    """softmax(scale q k^T) v within each row.

    Args:
        way: one of `WAYS`. Where a device has no flash or efficient attention, it is `plain_attention`.
        query: (N, H, K). key, value: (M, H, K).
        queries, keys: the positions of their tokens.
        is_causal: position l of a row attends to positions up to l only; then both sides are the same.
        scale: of the scores.

    Returns:
        (N, H, K)
    """
    if not has_operators(way, query.device, query.dtype, query.shape[-1]):
        return plain_attention(query, key, value, queries, keys, is_causal=is_causal, scale=scale)
    return Attending(way, queries, keys, is_causal, scale).forward(query, key, value)[0]


@dataclass(slots=True)
class Attending:
    """`packed_attention` by one operator forward, whose gradient torch's C++ knows, and one backward.

    flash: for rows of different lengths (Dao, 2023), by the operator below `torch.nn.attention.varlen`, without the
    steps that torch makes before it and the zeros that it fills. efficient: the kernels of xFormers that torch has,
    with smaller tiles, also in fp32 and on older cards.
    """

    way: LayoutKind
    queries: Side
    keys: Side
    is_causal: bool
    scale: float

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
        """Output (N, H, K), and what else `backward` needs."""
        if self.way == "flash":
            out, log_sums, seed, unused, _ = torch.ops.aten._flash_attention_forward(
                *(query, key, value, *self._rows(), 0.0, self.is_causal, False),
                scale=self.scale,
                window_size_left=-1,
                window_size_right=0 if self.is_causal else -1,
            )
            return out, log_sums, seed, unused
        out, log_sums, seed, unused, *_ = torch.ops.aten._efficient_attention_forward(
            *(query[None], key[None], value[None], None, *self._rows()),
            *(0.0, _CAUSAL if self.is_causal else 0, True),
            scale=self.scale,
        )
        return out.squeeze(0), log_sums, seed, unused

    def backward(self, grad: Tensor, query: Tensor, key: Tensor, value: Tensor, *kept: Tensor) -> tuple[Tensor, ...]:
        """Gradients of query, key and value."""
        given = query, key, value
        by: tuple[Tensor, ...]
        out, log_sums, seed, unused = kept
        if self.way == "flash":
            by = torch.ops.aten._flash_attention_backward(
                *(grad, *given, out, log_sums, *self._rows(), 0.0, self.is_causal, seed, unused),
                scale=self.scale,
                window_size_left=-1,
                window_size_right=0 if self.is_causal else -1,
            )
            return by
        by = torch.ops.aten._efficient_attention_backward(
            *(grad[None], *(x[None] for x in given), None, out[None], *self._rows(), log_sums, 0.0, seed, unused),
            *(_CAUSAL if self.is_causal else 0, False),
            scale=self.scale,
        )
        return tuple(x[0] for x in by[:3])

    def _rows(self) -> tuple[Tensor | int | None, ...]:
        return self.queries.bounds, self.keys.bounds, self.queries.longest, self.keys.longest


def has_operators(way: LayoutKind, device: torch.device, dtype: torch.dtype, head_width: int) -> bool:
    """Whether an attention of such queries is one operator forward and one backward: `Attending`."""
    return device.type != "cpu" and _has(way, device, dtype, head_width)


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


def why_not(way: LayoutKind, device: torch.device, dtype: torch.dtype, head_width: int) -> str:
    """Why a GPU does not have a way of attention; empty if it has, and for other devices, which need none."""
    if device.type != "cuda":
        return ""
    return _why_not_by_type(way, dtype, head_width) or _why_not_by_card(
        way, torch.cuda.get_device_capability(device), dtype, head_width
    )


def _why_not_by_type(way: LayoutKind, dtype: torch.dtype, head_width: int) -> str:
    if way == "flash" and dtype not in _HALVES:
        return "it needs bf16 or fp16"
    multiple = 8 if dtype in _HALVES else 4
    if head_width % multiple or (way == "flash" and head_width > _WIDEST_FLASH):
        most = f" up to {_WIDEST_FLASH}" if way == "flash" else ""
        return f"heads are {head_width} wide; it needs a multiple of {multiple}{most}"
    return ""


def _why_not_by_card(way: LayoutKind, capability: tuple[int, int], dtype: torch.dtype, head_width: int) -> str:
    least = max(_SINCE[way], _BF16_SINCE if dtype == torch.bfloat16 else (0, 0))
    if capability < least:
        precision = "" if least == _SINCE[way] else " in bf16"
        return f"it needs a GPU of compute capability {least[0]}.{least[1]} or newer{precision}"
    if way == "flash" and capability in _SMALL_SHARED_MEMORY and head_width in _WIDTHS_WITHOUT_BACKWARD:
        return f"heads are {head_width} wide, for which this GPU has no backward pass"
    return ""


@functools.cache  # it takes too long for every attention call
def _has(way: LayoutKind, device: torch.device, dtype: torch.dtype, head_width: int) -> bool:
    if device.type != "cuda":  # the tests' device, which takes what a GPU would
        return not _why_not_by_type(way, dtype, head_width)
    return not why_not(way, device, dtype, head_width)


def _rows(side: Side, num_tokens: int) -> Tensor:
    """(N): the row of each token."""
    assert side.bounds is not None
    return torch.bucketize(torch.arange(num_tokens, device=side.bounds.device), side.bounds[1:], right=True)
