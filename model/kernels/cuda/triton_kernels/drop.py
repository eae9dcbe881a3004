"""`zeromt::drop` in Triton: the random words of `model.kernels.cuda.dropout`, in one pass over memory."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from model.kernels.cuda.dropout import threshold
from model.kernels.cuda.triton_kernels.launching import launch

MAX_FEATURES = 1024
"""Most features of a token in one program."""


@triton.jit
def random_words(tokens, token, site, first_block, BLOCKS: tl.constexpr):
    """32-bit random words (4 BLOCKS,) for the features of a token from 4 first_block on."""
    at = tokens + token.to(tl.int64) * 4
    low, high = tl.load(at).to(tl.uint32, bitcast=True), tl.load(at + 1).to(tl.uint32, bitcast=True)
    pair, position = tl.load(at + 2).to(tl.uint32, bitcast=True), tl.load(at + 3).to(tl.uint32, bitcast=True)
    block = (first_block + tl.arange(0, BLOCKS)).to(tl.uint32)
    zero = block * 0
    w0, w1, w2, w3 = tl.philox_impl(block, zero + position, zero + pair, zero + site, low, high)
    return tl.interleave(tl.interleave(w0, w2), tl.interleave(w1, w3))


@triton.jit(do_not_specialize=("site",), do_not_specialize_on_alignment=("tokens",))
def _drop(x, out, tokens, site, drop_below, scale, num_features, BLOCKS: tl.constexpr):
    token, part = tl.program_id(0), tl.program_id(1)
    feature = part * 4 * BLOCKS + tl.arange(0, 4 * BLOCKS)
    words = random_words(tokens, token, site, part * BLOCKS, BLOCKS)
    at = token.to(tl.int64) * num_features + feature
    value = tl.load(x + at, mask=feature < num_features).to(tl.float32) * scale
    tl.store(out + at, tl.where(words >= drop_below, value, 0.0).to(out.dtype.element_ty), mask=feature < num_features)


def drop(x: Tensor, tokens_N4: Tensor, site: int, p: float) -> Tensor:
    """The operator `drop` of `model.kernels.cuda.dropout`."""
    x = x.contiguous()
    num_features, out = x.shape[-1], torch.empty_like(x)
    blocks = triton.next_power_of_2(-(-min(num_features, MAX_FEATURES) // 4))
    grid = (tokens_N4.shape[0], triton.cdiv(num_features, 4 * blocks), 1)
    numbers = site, threshold(p), 1 / (1 - p), num_features
    launch(
        _drop, grid, (x, out, tokens_N4.contiguous()), numbers, {"BLOCKS": blocks}, variant=(threshold(p), num_features)
    )
    return out
