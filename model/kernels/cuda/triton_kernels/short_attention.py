"""`zeromt::short_attention`: one program for a row and head, which it reads in tiles of tokens.

Tiles are small: most rows of sentences fit one, and longer ones take none that has no token. Their size does not go by
the batch, for which Triton would compile anew.
"""

import functools

import torch
import triton
import triton.language as tl
from torch import Tensor

from model.kernels.cuda.philox import threshold
from model.kernels.cuda.triton_kernels.launching import launch

TENSOR_CORES, OTHERS = (32, 4), (16, 8)
"""Tokens of a tile, and warps of a program. Without tensor cores a thread holds whole columns of what it multiplies;
larger tiles do not fit its registers."""
FEWER_REGISTERS, ALL_REGISTERS = 168, 255
"""Most of a thread: with three programs of four warps alive on a multiprocessor, and with two. Without a limit the
compiler aims at still more programs, and moves a few registers to memory for that."""
CHUNK = 16
"""Columns of a head that are multiplied at a time without tensor cores: the least that a matmul takes."""
TENSOR_CORES_SINCE = (8, 0)
"""The compute capability from which Triton uses them."""


def short_attention(
    query: Tensor, key: Tensor, value: Tensor, query_bounds: Tensor, key_bounds: Tensor, tokens_N4: Tensor | None,
    site: int, p: float, is_causal: bool, scale: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The operator `short_attention` of `model.kernels.cuda.short_attention`."""
    num_queries, num_heads, width = query.shape
    query, key, value = (heads_together(x) for x in (query, key, value))
    out = torch.empty((num_queries, num_heads, width), dtype=query.dtype, device=query.device)
    log_sums = torch.empty((num_heads, num_queries), dtype=torch.float32, device=query.device)
    if num_queries:
        strides, drop_below = (query.stride(0), key.stride(0), value.stride(0)), threshold(p)
        constants, options = tiling(query.dtype, width, query.device, drops=tokens_N4 is not None)
        launch(
            _rows,
            ((len(query_bounds) - 1) * num_heads, 1, 1),
            (query, key, value, query_bounds, key_bounds, tokens_N4, out, log_sums),
            (*strides, num_queries, site, drop_below, 1 / (1 - p), scale),
            {"HEADS": num_heads, "WIDTH": width, "IS_CAUSAL": is_causal, **constants},
            variant=(*strides, drop_below),
            **options,
        )
    return out, log_sums


def heads_together(x_NHK: Tensor) -> Tensor:
    """With the heads of a token one behind the other; a part of joined projections is so already."""
    return x_NHK if x_NHK.stride()[1:] == (x_NHK.shape[2], 1) else x_NHK.contiguous()


@functools.cache
def tiling(
    dtype: torch.dtype, width: int, device: torch.device, *, drops: bool
) -> tuple[dict[str, int], dict[str, int]]:
    """The last constants of both kernels, in their order, and the compiler's options."""
    has_cores = device.type != "cuda" or torch.cuda.get_device_capability(device) >= TENSOR_CORES_SINCE
    return sizes(width, uses_cores=has_cores and dtype != torch.float32, drops=drops)


def sizes(width: int, *, uses_cores: bool, drops: bool) -> tuple[dict[str, int], dict[str, int]]:
    """`tiling` of heads of this width, with tensor cores or without, with dropout or without."""
    block = max(CHUNK, int(triton.next_power_of_2(width)))
    tile, num_warps = TENSOR_CORES if uses_cores else OTHERS
    registers = FEWER_REGISTERS if uses_cores and not drops else ALL_REGISTERS
    constants = {"DROPS": drops, "BLOCK": block, "TILE": tile, "CHUNKS": 1 if uses_cores else block // CHUNK}
    # few loops have more than one turn, so none loads ahead
    return constants, {"num_warps": num_warps, "num_stages": 1, "maxnreg": registers}


@triton.jit
def load_tile(x, first, num_tokens, stride, WIDTH: tl.constexpr, BLOCK: tl.constexpr, TILE: tl.constexpr):
    """(TILE, BLOCK): tokens of a row and head from `first` on, zeros beyond them."""
    token, column = first + tl.arange(0, TILE)[:, None], tl.arange(0, BLOCK)[None, :]
    return tl.load(x + token * stride + column, mask=(token < num_tokens) & (column < WIDTH), other=0.0)


@triton.jit
def store_tile(x, tile, first, num_tokens, stride, WIDTH: tl.constexpr, BLOCK: tl.constexpr, TILE: tl.constexpr):
    """Store what `load_tile` would load."""
    token, column = first + tl.arange(0, TILE)[:, None], tl.arange(0, BLOCK)[None, :]
    is_in = (token < num_tokens) & (column < WIDTH)
    tl.store(x + token * stride + column, tile.to(x.dtype.element_ty), mask=is_in)


@triton.jit
def product(a, b, CHUNKS: tl.constexpr):
    """a b^T of (TILE, BLOCK) each: the sum over parts of their columns."""
    if CHUNKS == 1:
        return tl.dot(a, tl.trans(b), input_precision="ieee")
    a = tl.permute(tl.reshape(a, (a.shape[0], CHUNKS, a.shape[1] // CHUNKS)), (1, 0, 2))
    b = tl.permute(tl.reshape(b, (b.shape[0], CHUNKS, b.shape[1] // CHUNKS)), (1, 2, 0))
    return tl.sum(tl.dot(a, b, input_precision="ieee"), 0)


@triton.jit
def scores_of(
    q, k, first_query, first_key, num_keys, scale, IS_CAUSAL: tl.constexpr, TILE: tl.constexpr, CHUNKS: tl.constexpr
):
    """(TILE, TILE): scale q k^T, -inf where a query does not see a key."""
    query, key = first_query + tl.arange(0, TILE)[:, None], first_key + tl.arange(0, TILE)[None, :]
    is_seen = key < num_keys
    if IS_CAUSAL:
        is_seen = is_seen & (key <= query)
    return tl.where(is_seen, product(q, k, CHUNKS) * scale, float("-inf"))


@triton.jit
def is_kept(tokens, first_query, num_queries, first_key, site, head, drop_below, TILE: tl.constexpr):
    """(TILE, TILE): which weights dropout keeps; head h draws like dropout number site + 65,536 h."""
    query = first_query + tl.arange(0, TILE)
    at = tokens + query * 4
    is_in = query < num_queries
    low, high = tl.load(at, mask=is_in, other=0), tl.load(at + 1, mask=is_in, other=0)
    pair, position = tl.load(at + 2, mask=is_in, other=0), tl.load(at + 3, mask=is_in, other=0)
    zero = tl.zeros((TILE, TILE // 4), tl.uint32)
    block = zero + (first_key // 4 + tl.arange(0, TILE // 4)).to(tl.uint32)[None, :]
    w0, w1, w2, w3 = tl.philox_impl(
        block, zero + position.to(tl.uint32, bitcast=True)[:, None], zero + pair.to(tl.uint32, bitcast=True)[:, None],
        zero + (site + head * 65536).to(tl.uint32), zero + low.to(tl.uint32, bitcast=True)[:, None],
        zero + high.to(tl.uint32, bitcast=True)[:, None],
    )  # fmt: skip
    return tl.interleave(tl.interleave(w0, w2), tl.interleave(w1, w3)) >= drop_below


@triton.jit(
    do_not_specialize=("num_tokens", "site"),
    do_not_specialize_on_alignment=("tokens", "query_bounds", "key_bounds"),
)
def _rows(
    query, key, value, query_bounds, key_bounds, tokens, out, log_sums, query_stride, key_stride, value_stride,
    num_tokens, site, drop_below, drop_scale, scale, HEADS: tl.constexpr, WIDTH: tl.constexpr,
    IS_CAUSAL: tl.constexpr, DROPS: tl.constexpr, BLOCK: tl.constexpr, TILE: tl.constexpr, CHUNKS: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(0) // HEADS, tl.program_id(0) % HEADS
    query_begin, key_begin = tl.load(query_bounds + row), tl.load(key_bounds + row)
    num_queries, num_keys = tl.load(query_bounds + row + 1) - query_begin, tl.load(key_bounds + row + 1) - key_begin
    query += query_begin.to(tl.int64) * query_stride + head * WIDTH
    key += key_begin.to(tl.int64) * key_stride + head * WIDTH
    value += key_begin.to(tl.int64) * value_stride + head * WIDTH
    out += (query_begin.to(tl.int64) * HEADS + head) * WIDTH
    log_sums += head.to(tl.int64) * num_tokens + query_begin
    if DROPS:
        tokens += query_begin.to(tl.int64) * 4
    for first_query in range(0, num_queries, TILE):
        q = load_tile(query, first_query, num_queries, query_stride, WIDTH, BLOCK, TILE)
        largest, total = tl.full((TILE,), float("-inf"), tl.float32), tl.zeros((TILE,), tl.float32)
        summed = tl.zeros((TILE, BLOCK), tl.float32)
        end = num_keys
        if IS_CAUSAL:
            end = tl.minimum(num_keys, first_query + TILE)
        for first_key in range(0, end, TILE):  # the first key is seen by all, so the largest score is never -inf
            if DROPS:  # first, while fewest registers are in use
                kept = is_kept(tokens, first_query, num_queries, first_key, site, head, drop_below, TILE)
            k = load_tile(key, first_key, num_keys, key_stride, WIDTH, BLOCK, TILE)
            v = load_tile(value, first_key, num_keys, value_stride, WIDTH, BLOCK, TILE)
            scores = scores_of(q, k, first_query, first_key, num_keys, scale, IS_CAUSAL, TILE, CHUNKS)
            new = tl.maximum(largest, tl.max(scores, 1))
            weights = tl.exp(scores - new[:, None])
            rescale = tl.exp(largest - new)
            largest, total = new, total * rescale + tl.sum(weights, 1)
            if DROPS:
                weights = tl.where(kept, weights * drop_scale, 0.0)
            summed = summed * rescale[:, None] + tl.dot(weights.to(v.dtype), v, input_precision="ieee")
        total = tl.where(total == 0, 1.0, total)  # without keys the result is 0
        store_tile(out, summed / total[:, None], first_query, num_queries, HEADS * WIDTH, WIDTH, BLOCK, TILE)
        position = first_query + tl.arange(0, TILE)
        tl.store(log_sums + position, largest + tl.log(total), mask=position < num_queries)
