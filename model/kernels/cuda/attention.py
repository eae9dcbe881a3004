"""Attention that computes nothing for padding."""

from torch import Tensor

from model.attention import AttentionCache, MultiHeadAttention
from model.kernels.cuda.varlen import packed_attention
from model.layout import Current, SideName
from model.positions import NoRotation


class CudaAttention(MultiHeadAttention):
    """MultiHeadAttention; in a packed pass over the tokens of each row alone.

    `use` of this package sets the three.
    """

    current: Current
    queries_side: SideName
    memory_side: SideName

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
        """See MultiHeadAttention; packed, (1, N, D) to (1, N, D)."""
        layout = self.current.layout
        if layout is None or not layout.is_packed:
            return super().forward(
                queries_BLD, memory_BSD, bias, is_causal=is_causal, cache=cache, memory_is_fixed=memory_is_fixed
            )
        queries, keys = layout.side(self.queries_side), layout.side(self.memory_side)
        query, key, value = map(self._split, self.project(queries_BLD, memory_BSD))
        if not isinstance(self.rotation, NoRotation):
            query, key = self.rotation(query, queries.positions), self.rotation(key, keys.positions)
        query, key, value = (
            x[0].transpose(0, 1) for x in (query, self._for_each_query(key), self._for_each_query(value))
        )  # (N, H, K)
        out = packed_attention(query, key, value, queries, keys, is_causal=is_causal, scale=self.scale)
        merged: Tensor = self.output(out.flatten(1)[None])
        return merged
