"""`zeromt::rotate`: one program for the queries and keys of a token."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from model.kernels.cuda.triton_kernels.launching import launch
from model.kernels.cuda.triton_kernels.residual_norm import block_of
from model.kernels.cuda.triton_kernels.short_attention import heads_together


def rotate(query: Tensor, key: Tensor, table: Tensor, tokens_N4: Tensor, is_back: bool) -> tuple[Tensor, Tensor]:
    """The operator `rotate` of `model.kernels.cuda.rotary`."""
    query, key = heads_together(query), heads_together(key)
    num_tokens, num_heads, width = query.shape
    out = [torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (query, key)]
    if num_tokens:
        strides = query.stride(0), key.stride(0)
        constants = {"HEADS": num_heads, "KEY_HEADS": key.shape[1], "WIDTH": width}
        constants |= {"BLOCK": block_of(num_heads * width), "KEY_BLOCK": block_of(key.shape[1] * width)}
        launch(
            _tokens,
            (num_tokens, 1, 1),
            (query, key, table, tokens_N4.contiguous(), *out),
            strides,
            {**constants, "IS_BACK": is_back},
            variant=strides,
        )
    return out[0], out[1]


@triton.jit
def _turn(x, out, sines, HEADS: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, IS_BACK: tl.constexpr):
    """Turn the heads of a token by the angles (WIDTH: sine, cosine, sine ...) at `sines`."""
    feature = tl.arange(0, BLOCK)
    is_in = feature < HEADS * WIDTH
    value = tl.load(x + feature, mask=is_in, other=0.0).to(tl.float32)
    wave = tl.load(sines + feature % WIDTH, mask=is_in, other=0.0).to(tl.float32)
    even, odd = tl.split(tl.reshape(value, (BLOCK // 2, 2)))
    sine, cosine = tl.split(tl.reshape(wave, (BLOCK // 2, 2)))
    if IS_BACK:
        sine = -sine
    turned = tl.interleave(even * cosine - odd * sine, even * sine + odd * cosine)
    tl.store(out + feature, turned.to(out.dtype.element_ty), mask=is_in)


@triton.jit(do_not_specialize_on_alignment=("tokens",))
def _tokens(
    query, key, table, tokens, query_out, key_out, query_stride, key_stride, HEADS: tl.constexpr,
    KEY_HEADS: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, KEY_BLOCK: tl.constexpr, IS_BACK: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    sines = table + tl.load(tokens + token * 4 + 3).to(tl.int64) * WIDTH
    _turn(query + token * query_stride, query_out + token * HEADS * WIDTH, sines, HEADS, WIDTH, BLOCK, IS_BACK)
    _turn(key + token * key_stride, key_out + token * KEY_HEADS * WIDTH, sines, KEY_HEADS, WIDTH, KEY_BLOCK, IS_BACK)
