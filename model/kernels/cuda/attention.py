"""Attention for packed rows, one after the other without padding, and one matmul for all projections of the same input.

Shapes: N queries and M keys in R rows, B rows padded to L queries and S keys, H heads of width K.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from model.attention import AttentionCache, MultiHeadAttention, attend, attention_weights
from model.kernels.cuda.linear import Joined
from model.kernels.cuda.sublayers import AttentionCore
from model.kernels.cuda.ways import Attending, has_operators, packed_attention
from model.layout import Current, Side, SideName

HEAD_SITES = 1 << 16
"""Head h drops weights like dropout number site + HEAD_SITES h of the model."""


class CudaAttention(MultiHeadAttention):
    """MultiHeadAttention; in a packed pass each row attends within its own tokens.

    `use` of this package sets the five attributes.
    """

    current: Current
    name: str
    """Name of the module, the key of its projections in `Current.projections`."""
    queries_side: SideName
    memory_side: SideName
    drops: tuple[int, float] = 0, 0.0
    """Site and probability of dropout on the weights."""

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
        if self.rotation is not None:
            query, key = self._rotate(query, queries), self._rotate(key, keys)
        if self.queries_per_key != 1:
            key, value = (x.repeat_interleave(self.queries_per_key, dim=1) for x in (key, value))
        out = packed_attention(layout.kind, query, key, value, queries, keys, is_causal=is_causal, scale=self.scale)
        merged: Tensor = self.output(out.flatten(1).unsqueeze(0))
        return merged

    @override
    def attend(self, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, *, is_causal: bool) -> Tensor:
        """Where a pass has a layout, dropout of weights goes by positions too."""
        layout, (site, p) = self.current.layout, self.drops
        if layout is None or not (p and self.training):
            return attend(query, key, value, bias, is_causal=is_causal, dropout=self.dropout, scale=self.scale)
        weights_BHLS = attention_weights(query, key, bias, is_causal=is_causal, scale=self.scale)
        places = layout.side(self.queries_side).places
        dropped = [
            torch.ops.zeromt.drop(weights_BLS, places, site + head * HEAD_SITES, p)
            for head, weights_BLS in enumerate(weights_BHLS.unbind(1))
        ]
        return torch.stack(dropped, 1) @ value

    def _rotate(self, x_NHK: Tensor, side: Side) -> Tensor:
        assert self.rotation is not None
        out: Tensor = self.rotation(x_NHK.transpose(0, 1).unsqueeze(0), side.positions)
        return out.squeeze(0).transpose(0, 1)

    @override
    def project(self, queries_BLD: Tensor, memory_BSD: Tensor) -> tuple[Tensor, ...]:
        joined = self.current.projections.get(self.name)
        if joined is None:
            return super().project(queries_BLD, memory_BSD)
        if queries_BLD is memory_BSD:
            return joined(memory_BSD)
        return self.query(queries_BLD), *joined(memory_BSD)


Whole = tuple[AttentionCore, tuple[Tensor | None, ...], Sequence[Tensor]]
"""What attention does, its weights and projected keys and values, and the parameters of projections that are joined."""


class Attends:
    """An attention sub-layer of a bare packed pass, as a function of its queries' input."""

    __slots__ = "attention", "is_causal", "memory"

    def __init__(self, attention: CudaAttention, memory: Tensor | None, *, is_causal: bool = False) -> None:
        self.attention, self.memory, self.is_causal = attention, memory, is_causal

    def __call__(self, h: Tensor) -> Tensor:
        """(1, N, D) to (1, N, D)."""
        return self.attention.forward(h, h if self.memory is None else self.memory, is_causal=self.is_causal)

    def inside(self) -> Whole | None:
        """The arguments for `sublayers.attention_and_norm`; None if that has no such attention."""
        attention = self.attention
        parts: Any = attention._modules
        current, head_width = attention.current, attention.head_width
        joined, layout = current.projections.get(attention.name), current.layout
        if layout is None or joined is None or attention.queries_per_key != 1 or attention.rotation is not None:
            return None
        last = parts["output"]._parameters
        weight = last["weight"]
        if not has_operators(layout.kind, weight.device, weight.dtype, head_width):
            return None
        queries, keys = layout.side(attention.queries_side), layout.side(attention.memory_side)
        attending = Attending(layout.kind, queries, keys, self.is_causal, attention.scale)
        of_last = weight, last["bias"]
        if self.memory is None:
            if not isinstance(joined, Joined):
                return None
            inside = AttentionCore(attending, head_width, joined.widths)
            return inside, (joined.weight, joined.bias, None, None, *of_last), joined.parameters
        first = parts["query"]._parameters
        inside = AttentionCore(attending, head_width, (0,))
        return inside, (first["weight"], first["bias"], *joined(self.memory), *of_last), ()
