"""The self-attention cache of a search in one buffer: one kernel moves the selected rows, not two for each layer."""

from collections.abc import Mapping

import torch
from torch import Tensor
from typing_extensions import override

from model.attention import CACHE_MULTIPLE, AttentionCache
from model.layout import Projection
from model.transformer import DecoderState


class SharedCache:
    """Keys and values of the self-attention of all layers: (layers, 2, N, key heads, C, K)."""

    def __init__(self, num_layers: int) -> None:
        self._num_layers = num_layers
        self._held: Tensor | None = None
        self._rows: Tensor | None = None  # selected, not yet moved
        self._length = 0

    def select(self, rows: Tensor) -> None:
        """Keep these rows, for all layers; they are moved when the next position is written."""
        if self._held is not None:
            self._rows = rows if self._rows is None else self._rows[rows]

    def reserve(self, key: Tensor) -> None:
        """Move the selected rows, and allocate L more positions for keys like `key` (N, heads, L, K)."""
        length = self._length + key.shape[2]
        if self._held is None or self._rows is not None or length > self._held.shape[4]:
            buffer = key.new_empty(
                (self._num_layers, 2, *key.shape[:2], -(-length // CACHE_MULTIPLE) * CACHE_MULTIPLE, key.shape[3])
            )
            filled = buffer[:, :, :, :, : self._length]
            if self._held is not None and self._rows is not None:
                torch.index_select(self._held[:, :, :, :, : self._length], 2, self._rows, out=filled)
            elif self._held is not None:
                filled.copy_(self._held[:, :, :, :, : self._length])
            self._held, self._rows = buffer, None
        self._length = length

    def write(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Write the positions of the last `reserve` for a layer; returns all its keys and values."""
        assert self._held is not None
        keys, values = self._held[layer, :, :, :, : self._length].unbind(0)
        keys[:, :, -key.shape[2] :], values[:, :, -value.shape[2] :] = key, value
        return keys, values


class LayerPart(AttentionCache):
    """One layer's view of a SharedCache. Layers append in order, from layer 0 on, and all select the same rows."""

    def __init__(self, shared: SharedCache, layer: int) -> None:
        super().__init__()
        self._shared, self._layer = shared, layer

    @override
    def append(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        if self._layer == 0:
            self._shared.reserve(key)
        self.length += key.shape[2]
        return self._shared.write(self._layer, key, value)

    @override
    def select(self, rows: Tensor) -> None:
        if self._layer == 0:
            self._shared.select(rows)


class CudaDecoderState(DecoderState):
    """DecoderState with one cache for the self-attention of all layers, and what holds for all steps of a search."""

    def __init__(
        self,
        memory_BSD: Tensor,
        memory_bias: Tensor | None,
        num_layers: int,
        projections: Mapping[str, Projection],
        *,
        is_bare: bool,
    ) -> None:
        super().__init__(memory_BSD, memory_bias, num_layers)
        self.projections, self.is_bare = projections, is_bare
        shared = SharedCache(num_layers)
        for number, layer in enumerate(self.layers):
            layer.self_attention = LayerPart(shared, number)
