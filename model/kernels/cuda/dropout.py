"""Dropout whose mask is a pure function of lane seed, dropout layer, pair, position and feature.

Padded, packed, merged and recomputed passes drop the same elements. The backward pass recomputes the mask
instead of storing it. `torch.ops.zeromt.drop` is one Triton kernel on a GPU and plain torch elsewhere.

The random words are Philox4x32-10's (Salmon et al., 2011): the key is the seed of the token's lane; the counter is
(block of four features, position, pair, site). `site` is the number of the dropout within the model. Shapes: N tokens,
F features.
"""

from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from model.kernels.cuda.operators import LIBRARY, define
from model.layout import Current, SideName
from model.sublayers import Dropout

WORD = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_STEPS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10


def philox(counter: tuple[Tensor, ...], key: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Four 32-bit words for each counter (four words) and key (two words); all are int64 and broadcast."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        # int64 keeps all 64 bits of a product, whatever its sign
        product_0, product_2 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1 = (product_2 >> 32) & WORD ^ c1 ^ k0, product_2 & WORD
        c2, c3 = (product_0 >> 32) & WORD ^ c3 ^ k1, product_0 & WORD
        k0, k1 = (k0 + _STEPS[0]) & WORD, (k1 + _STEPS[1]) & WORD
    return c0, c1, c2, c3


def random_words(tokens_N4: Tensor, site: int, num_features: int) -> Tensor:
    """(N, F) int64 of 32 random bits each, for tokens given as in `model.layout.Side.places`."""
    low, high, pair, position = (tokens_N4.long() & WORD)[..., None].unbind(1)  # (N, 1) each
    block = torch.arange(-(-num_features // 4), device=tokens_N4.device)[None]
    words = philox((block, position, pair, torch.full_like(pair, site)), (low, high))
    return torch.stack(words, dim=-1).flatten(1)[:, :num_features]


def threshold(p: float) -> int:
    """Elements whose word is below this are dropped: a fraction `p`, exact to 2^-32."""
    return min(round(p * 2**32), WORD)


class CudaDropout(Dropout):
    """Dropout by position if the pass has a layout, else torch's dropout.

    `use` of this package sets the three attributes.
    """

    current: Current
    side: SideName
    """Whether its rows are source or target tokens."""
    site: int
    """Number of this dropout within the model."""

    @override
    def forward(self, x: Tensor) -> Tensor:
        """`x` is (..., F) with a row for each token."""
        layout = self.current.layout
        if layout is None or not self.training or self.p == 0:
            return super().forward(x)
        tokens_N4 = layout.side(self.side).places
        if x.shape[:-1].numel() != tokens_N4.shape[0]:  # such as attention weights in a plugin's component
            return super().forward(x)
        out: Tensor = torch.ops.zeromt.drop(x, tokens_N4, self.site, self.p)
        return out


def _plain(x: Tensor, tokens_N4: Tensor, site: int, p: float) -> Tensor:
    words_NF = random_words(tokens_N4, site, x.shape[-1])
    return torch.where((words_NF >= threshold(p)).view(x.shape), x * (1 / (1 - p)), 0.0)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, tokens_N4, ctx.site, ctx.p = inputs
    ctx.save_for_backward(tokens_N4)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    return torch.ops.zeromt.drop(grad, *ctx.saved_tensors, ctx.site, ctx.p), None, None, None


drop = define("drop(Tensor x, Tensor tokens_N4, int site, float p) -> Tensor", _plain, launches=1)
"""Dropout of x (..., F) with a row for each token (N, 4); see `model.layout.Side.places`."""
torch.library.register_autograd("zeromt::drop", _backward, setup_context=_keep, lib=LIBRARY)
