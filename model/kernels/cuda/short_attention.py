"""Attention of packed rows, made for short ones, with dropout as a function of where a weight stands.

Flash attention (Dao, 2023) computes tiles of 128 x 128, where a row of sentences has some 30 tokens. Longer rows are
right too, and slow: a row and head is one program.

Shapes: N queries and M keys in R rows, H heads of width K.
"""

from typing import Any

import torch
from torch import Tensor

from model.kernels.cuda.operators import Operator, define
from model.kernels.cuda.philox import random_words, threshold

WIDEST_HEAD = 128
HEAD_SITES = 1 << 16
"""Head h draws like dropout number site + HEAD_SITES h of the model."""


class ShortAttention(torch.autograd.Function):
    """dropout(softmax(scale q k^T)) v within each row: `short_attention` with its backward pass."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, query_bounds: Tensor, key_bounds: Tensor,
        tokens_N4: Tensor | None, site: int, p: float, is_causal: bool, scale: float,
    ) -> Tensor:  # fmt: skip
        """(N, H, K)."""
        ctx.numbers = site, p, is_causal, scale
        out, log_sums = short_attention(query, key, value, query_bounds, key_bounds, tokens_N4, *ctx.numbers)
        ctx.save_for_backward(query, key, value, out, log_sums, query_bounds, key_bounds, tokens_N4)
        result: Tensor = out
        return result

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of query, key and value."""
        by = short_attention_backward(grads[0], *ctx.saved_tensors, *ctx.numbers)
        return *by, None, None, None, None, None, None, None


def _weights(
    query: Tensor, key: Tensor, query_bounds: Tensor, key_bounds: Tensor, tokens_N4: Tensor | None, site: int,
    p: float, is_causal: bool, scale: float,
) -> tuple[Tensor, Tensor, Tensor | float]:  # fmt: skip
    """Log-sums (H, N), and (H, N, M) each: the weights before dropout, and what dropout multiplies them by."""
    places = [torch.arange(len(x), device=x.device) for x in (query, key)]
    bounds = query_bounds, key_bounds
    rows = [torch.bucketize(at, ends[1:], right=True) for at, ends in zip(places, bounds, strict=True)]
    positions = [at - ends[row] for at, ends, row in zip(places, bounds, rows, strict=True)]
    is_seen = rows[0][:, None] == rows[1]
    if is_causal:
        is_seen = is_seen & (positions[0][:, None] >= positions[1])
    q, k = (x.transpose(0, 1).to(_precision(x)) for x in (query, key))
    scores = (q @ k.transpose(1, 2) * scale).masked_fill(~is_seen, -torch.inf)
    log_sums = scores.logsumexp(-1)
    weights = (scores - log_sums[..., None]).exp().masked_fill(~is_seen, 0.0)
    if tokens_N4 is None:
        return log_sums, weights, 1.0
    sites = range(site, site + query.shape[1] * HEAD_SITES, HEAD_SITES)
    words = torch.stack([random_words(tokens_N4, head, len(key))[:, positions[1]] for head in sites])
    return log_sums, weights, (words >= threshold(p)) / (1 - p)


def _precision(x: Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, torch.float32)


def _plain_forward(query: Tensor, key: Tensor, value: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    log_sums, weights, kept = _weights(query, key, *rest)
    out = weights * kept @ value.transpose(0, 1).to(weights.dtype)
    return out.transpose(0, 1).to(query.dtype).contiguous(), log_sums.float()


def _plain_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, log_sums: Tensor, *rest: Any
) -> tuple[Tensor, Tensor, Tensor]:
    _, weights, kept = _weights(query, key, *rest)
    g, q, k, v = (x.transpose(0, 1).to(weights.dtype) for x in (grad, query, key, value))
    by_weights = g @ v.transpose(1, 2) * kept
    by_scores = weights * (by_weights - (weights * by_weights).sum(-1, keepdim=True)) * rest[-1]
    by = by_scores @ k, by_scores.transpose(1, 2) @ q, (weights * kept).transpose(1, 2) @ g
    by_query, by_key, by_value = (x.transpose(0, 1).to(query.dtype).contiguous() for x in by)
    return by_query, by_key, by_value


def _fake_forward(query: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    log_sums = query.new_empty((query.shape[1], query.shape[0]), dtype=torch.float32)
    return query.new_empty(query.shape), log_sums


def _fake_backward(grad: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    query, key, value = rest[:3]
    return query.new_empty(query.shape), key.new_empty(key.shape), value.new_empty(value.shape)


short_attention = define(
    "short_attention(Tensor query, Tensor key, Tensor value, Tensor query_bounds, Tensor key_bounds, Tensor? tokens, "
    "int site, float p, bool is_causal, float scale) -> (Tensor out, Tensor log_sums)",
    _plain_forward,
    cost=Operator(launches=1),
    fake=_fake_forward,
)
"""out = dropout(softmax(scale q k^T)) v within each row, (N, H, K); 0 where a row has no keys. log_sums (H, N), fp32,
are the logarithms of the sums of exponentials of the scores.

query is (N, H, K), key and value (M, H, K), with K up to `WIDEST_HEAD`; bounds (R + 1) and tokens (N, 4), of the
queries, are `Side.bounds` and `Side.places`. With `is_causal` position l attends to positions up to l only; then both
sides are the same. Without tokens nothing is dropped.
"""
short_attention_backward = define(
    "short_attention_backward(Tensor grad, Tensor query, Tensor key, Tensor value, Tensor out, Tensor log_sums, "
    "Tensor query_bounds, Tensor key_bounds, Tensor? tokens, int site, float p, bool is_causal, float scale) "
    "-> (Tensor grad_query, Tensor grad_key, Tensor grad_value)",
    _plain_backward,
    cost=Operator(launches=1),
    fake=_fake_backward,
)
"""Gradients of query, key and value."""
