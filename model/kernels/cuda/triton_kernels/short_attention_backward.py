"""`zeromt::short_attention_backward`: one program for a row and head, so that nothing is summed in memory.

Gradients of keys and values are sums over the tiles of queries, those of queries over the tiles of keys. A row of
several tiles of keys is gone through twice, and computes its weights again (FlashAttention, Dao et al., 2022).
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from model.kernels.cuda.philox import threshold
from model.kernels.cuda.triton_kernels.launching import launch
from model.kernels.cuda.triton_kernels.short_attention import (
    heads_together,
    is_kept,
    load_tile,
    product,
    scores_of,
    store_tile,
    tiling,
)


def short_attention_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, log_sums: Tensor, query_bounds: Tensor,
    key_bounds: Tensor, tokens_N4: Tensor | None, site: int, p: float, is_causal: bool, scale: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The operator `short_attention_backward` of `model.kernels.cuda.short_attention`."""
    num_heads, width = query.shape[1:]
    grad, query, key, value = (heads_together(x) for x in (grad, query, key, value))
    grads = [torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (query, key, value)]
    if len(query) + len(key):
        strides, drop_below = tuple(x.stride(0) for x in (grad, query, key, value)), threshold(p)
        constants, options = tiling(query.dtype, width, query.device, drops=tokens_N4 is not None)
        launch(
            _rows,
            ((len(query_bounds) - 1) * num_heads, 1, 1),
            (grad, query, key, value, out, log_sums, query_bounds, key_bounds, tokens_N4, *grads),
            (*strides, len(query), site, drop_below, 1 / (1 - p), scale),
            {"HEADS": num_heads, "WIDTH": width, "IS_CAUSAL": is_causal, **constants},
            variant=(*strides, drop_below),
            **options,
        )
    return grads[0], grads[1], grads[2]


@triton.jit
def _weights(
    q, k, v, grad, out, log_sums, tokens, first_query, num_queries, first_key, num_keys, site, head, drop_below,
    drop_scale, scale, WIDTH: tl.constexpr, BLOCK: tl.constexpr, TILE: tl.constexpr, HEADS: tl.constexpr,
    CHUNKS: tl.constexpr, IS_CAUSAL: tl.constexpr, DROPS: tl.constexpr,
):  # fmt: skip
    """(TILE, TILE) each: the weights after dropout, and the gradient of the scores."""
    if DROPS:  # first, while fewest registers are in use
        kept = is_kept(tokens, first_query, num_queries, first_key, site, head, drop_below, TILE)
    position = first_query + tl.arange(0, TILE)
    log_sum = tl.load(log_sums + position, mask=position < num_queries, other=0.0)
    # the mean of the weights' gradients comes of the output, which is rounded, unless all keys are here
    o = load_tile(out, first_query, tl.where(num_keys <= TILE, 0, num_queries), HEADS * WIDTH, WIDTH, BLOCK, TILE)
    mean = tl.sum(o.to(tl.float32) * grad.to(tl.float32), 1)
    scores = scores_of(q, k, first_query, first_key, num_keys, scale, IS_CAUSAL, TILE, CHUNKS)
    weights = tl.exp(scores - log_sum[:, None])
    grad_weights = product(grad, v, CHUNKS)
    dropped = weights
    if DROPS:
        dropped = tl.where(kept, weights * drop_scale, 0.0)
        grad_weights = tl.where(kept, grad_weights * drop_scale, 0.0)
    mean = tl.where(num_keys <= TILE, tl.sum(weights * grad_weights, 1), mean)
    return dropped, weights * (grad_weights - mean[:, None])


@triton.jit(
    do_not_specialize=("num_tokens", "site"),
    do_not_specialize_on_alignment=("tokens", "query_bounds", "key_bounds"),
)
def _rows(
    grad, query, key, value, out, log_sums, query_bounds, key_bounds, tokens, grad_query, grad_key, grad_value,
    grad_stride, query_stride, key_stride, value_stride, num_tokens, site, drop_below, drop_scale, scale,
    HEADS: tl.constexpr, WIDTH: tl.constexpr, IS_CAUSAL: tl.constexpr, DROPS: tl.constexpr, BLOCK: tl.constexpr,
    TILE: tl.constexpr, CHUNKS: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(0) // HEADS, tl.program_id(0) % HEADS
    query_begin, key_begin = tl.load(query_bounds + row), tl.load(key_bounds + row)
    num_queries, num_keys = tl.load(query_bounds + row + 1) - query_begin, tl.load(key_bounds + row + 1) - key_begin
    query_begin, key_begin = query_begin.to(tl.int64), key_begin.to(tl.int64)
    grad += query_begin * grad_stride + head * WIDTH
    query += query_begin * query_stride + head * WIDTH
    key += key_begin * key_stride + head * WIDTH
    value += key_begin * value_stride + head * WIDTH
    out += (query_begin * HEADS + head) * WIDTH
    grad_query += (query_begin * HEADS + head) * WIDTH
    grad_key += (key_begin * HEADS + head) * WIDTH
    grad_value += (key_begin * HEADS + head) * WIDTH
    log_sums += head.to(tl.int64) * num_tokens + query_begin
    if DROPS:
        tokens += query_begin * 4
    is_one_tile = (num_keys > 0) & (num_keys <= TILE)
    for first_key in range(0, num_keys, TILE):
        k = load_tile(key, first_key, num_keys, key_stride, WIDTH, BLOCK, TILE)
        v = load_tile(value, first_key, num_keys, value_stride, WIDTH, BLOCK, TILE)
        key_sum, value_sum = tl.zeros((TILE, BLOCK), tl.float32), tl.zeros((TILE, BLOCK), tl.float32)
        for first_query in range(first_key if IS_CAUSAL else 0, num_queries, TILE):
            q = load_tile(query, first_query, num_queries, query_stride, WIDTH, BLOCK, TILE)
            g = load_tile(grad, first_query, num_queries, grad_stride, WIDTH, BLOCK, TILE)
            dropped, by_scores = _weights(
                q, k, v, g, out, log_sums, tokens, first_query, num_queries, first_key, num_keys, site, head,
                drop_below, drop_scale, scale, WIDTH, BLOCK, TILE, HEADS, CHUNKS, IS_CAUSAL, DROPS,
            )  # fmt: skip
            value_sum += tl.dot(tl.trans(dropped.to(g.dtype)), g, input_precision="ieee")
            key_sum += tl.dot(tl.trans(by_scores.to(q.dtype)), q, input_precision="ieee")
            if is_one_tile:
                query_sum = tl.dot(by_scores.to(k.dtype), k, input_precision="ieee") * scale
                store_tile(grad_query, query_sum, first_query, num_queries, HEADS * WIDTH, WIDTH, BLOCK, TILE)
        store_tile(grad_key, key_sum * scale, first_key, num_keys, HEADS * WIDTH, WIDTH, BLOCK, TILE)
        store_tile(grad_value, value_sum, first_key, num_keys, HEADS * WIDTH, WIDTH, BLOCK, TILE)
    if not is_one_tile:
        for first_query in range(0, num_queries, TILE):
            q = load_tile(query, first_query, num_queries, query_stride, WIDTH, BLOCK, TILE)
            g = load_tile(grad, first_query, num_queries, grad_stride, WIDTH, BLOCK, TILE)
            query_sum = tl.zeros((TILE, BLOCK), tl.float32)
            for first_key in range(0, tl.minimum(num_keys, first_query + TILE) if IS_CAUSAL else num_keys, TILE):
                k = load_tile(key, first_key, num_keys, key_stride, WIDTH, BLOCK, TILE)
                v = load_tile(value, first_key, num_keys, value_stride, WIDTH, BLOCK, TILE)
                by_scores = _weights(
                    q, k, v, g, out, log_sums, tokens, first_query, num_queries, first_key, num_keys, site, head,
                    drop_below, drop_scale, scale, WIDTH, BLOCK, TILE, HEADS, CHUNKS, IS_CAUSAL, DROPS,
                )[1]  # fmt: skip
                query_sum += tl.dot(by_scores.to(k.dtype), k, input_precision="ieee")
            store_tile(grad_query, query_sum * scale, first_query, num_queries, HEADS * WIDTH, WIDTH, BLOCK, TILE)
