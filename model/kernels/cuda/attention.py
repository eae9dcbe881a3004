"""Attention without padding, and one matmul for all projections of the same input."""

from torch import Tensor
from typing_extensions import override

from model.attention import AttentionCache, MultiHeadAttention
from model.kernels.cuda.joined import joined_linear
from model.kernels.cuda.varlen import packed_attention
from model.layout import Current, Side, SideName
from model.positions import NoRotation


class CudaAttention(MultiHeadAttention):
    """MultiHeadAttention; in a packed pass each row attends within its own tokens.

    `use` of this package sets the four attributes.
    """

    current: Current
    name: str
    """Name of the module, the key of its projections in `Current.projections`."""
    queries_side: SideName
    memory_side: SideName

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
        query, key, value = (
            x.view(x.shape[1], -1, self.head_width) for x in self.project(queries_BLD, memory_BSD)
        )  # (N, H, K)
        if not isinstance(self.rotation, NoRotation):
            query, key = self._rotate(query, queries), self._rotate(key, keys)
        if self.queries_per_key != 1:
            key, value = (x.repeat_interleave(self.queries_per_key, dim=1) for x in (key, value))
        out = packed_attention(query, key, value, queries, keys, is_causal=is_causal, scale=self.scale)
        merged: Tensor = self.output(out.flatten(1).unsqueeze(0))
        return merged

    def _rotate(self, x_NHK: Tensor, side: Side) -> Tensor:
        rotated: Tensor = self.rotation(x_NHK.transpose(0, 1).unsqueeze(0), side.positions)
        return rotated.squeeze(0).transpose(0, 1)

    @override
    def project(self, queries_BLD: Tensor, memory_BSD: Tensor) -> tuple[Tensor, ...]:
        joined = self.current.projections.get(self.name)
        if queries_BLD is memory_BSD:
            return joined(memory_BSD) if joined else joined_linear(memory_BSD, [self.query, self.key, self.value])
        if not memory_BSD.shape[1]:
            return super().project(queries_BLD, memory_BSD)
        both = joined(memory_BSD) if joined else joined_linear(memory_BSD, [self.key, self.value])
        return self.query(queries_BLD), *both
