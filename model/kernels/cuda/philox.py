"""Random words as a pure function of a token's position, by Philox4x32-10 (Salmon et al., 2011), in plain torch.

The key is the seed of the token's lane; the counter is (block of four features, position, pair, site). `site` is the
number of the dropout within the model. Shapes: N tokens, F features.
"""

import torch
from torch import Tensor

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
