"""Rotary positions of queries and keys of packed rows, both by one kernel.

Shapes: N tokens, H heads of queries and G of keys, K features of a head, P positions.
"""

from typing import Any

import torch
from torch import Tensor

from model.kernels.cuda.operators import Operator, define, direct


class Rotate(torch.autograd.Function):
    """`model.positions.Rotation` of queries (N, H, K) and keys (N, G, K), by its table and `Side.places`."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, table_PK: Tensor, tokens_N4: Tensor) -> tuple[Tensor, Tensor]:
        """Rotated queries and keys."""
        ctx.save_for_backward(table_PK, tokens_N4)
        both: tuple[Tensor, Tensor] = rotate(query, key, table_PK, tokens_N4, False)
        return both

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of queries and keys: rotated back."""
        return *rotate(*grads, *ctx.saved_tensors, True), None, None


rotated = direct(Rotate)


def _plain(query: Tensor, key: Tensor, table: Tensor, tokens_N4: Tensor, is_back: bool) -> tuple[Tensor, ...]:
    precision = torch.promote_types(query.dtype, torch.float32)
    sine, cosine = table[tokens_N4[:, 3].long()].to(precision).view(len(tokens_N4), 1, -1, 2).unbind(-1)
    sine = -sine if is_back else sine
    found = []
    for x in (query, key):
        even, odd = x[..., 0::2].to(precision), x[..., 1::2].to(precision)
        turned = torch.stack([even * cosine - odd * sine, even * sine + odd * cosine], dim=-1)
        found.append(turned.flatten(-2).to(x.dtype))
    return tuple(found)


rotate = define(
    "rotate(Tensor query, Tensor key, Tensor table, Tensor tokens, bool is_back) -> (Tensor query, Tensor key)",
    _plain,
    cost=Operator(launches=1),
    fake=lambda query, key, *_: (query.new_empty(query.shape), key.new_empty(key.shape)),
)
"""Queries (N, H, K) and keys (N, G, K), each pair of neighbouring features rotated by an angle of the token's position.

table (P, K / 2, 2) has the sine and the cosine of each angle; tokens (N, 4) are `Side.places`. With `is_back` angles
are negative, which gives gradients.
"""
