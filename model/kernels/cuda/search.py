"""The cache of a search in one buffer: rows that are chosen move by one kernel, and not by two for each layer."""

import torch
from torch import Tensor

from model.attention import ROOM, AttentionCache
from model.transformer import DecoderState


class SharedCache:
    """Keys and values of self-attention of all layers: (layers, 2, N, heads of keys, C, K)."""

    def __init__(self, num_layers: int) -> None:
        self._num_layers = num_layers
        self._held: Tensor | None = None
        self._rows: Tensor | None = None  # chosen and not yet moved
        self._length = 0

    def select(self, rows: Tensor) -> None:
        """See AttentionCache."""
        if self._held is not None:
            self._rows = rows if self._rows is None else self._rows[rows]

    def make_room(self, key: Tensor) -> None:
        """For positions as those of `key` (N, heads, L, K) behind what there is, after rows that were chosen moved."""
        length = self._length + key.shape[2]
        if self._held is None or self._rows is not None or length > self._held.shape[4]:
            room = key.new_empty((self._num_layers, 2, *key.shape[:2], -(-length // ROOM) * ROOM, key.shape[3]))
            filled = room[:, :, :, :, : self._length]
            if self._held is not None and self._rows is not None:
                torch.index_select(self._held[:, :, :, :, : self._length], 2, self._rows, out=filled)
            elif self._held is not None:
                filled.copy_(self._held[:, :, :, :, : self._length])
            self._held, self._rows = room, None
        self._length = length

    def write(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """The positions of the last `make_room`, of a layer; gives all of it."""
        assert self._held is not None
        keys, values = self._held[layer, :, :, :, : self._length].unbind(0)
        keys[:, :, -key.shape[2] :], values[:, :, -value.shape[2] :] = key, value
        return keys, values


class LayerPart(AttentionCache):
    """What a layer holds of it. Layers add positions in their order, and all of them select the same rows."""

    def __init__(self, shared: SharedCache, layer: int) -> None:
        super().__init__()
        self._shared, self._layer = shared, layer

    def append(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """See AttentionCache."""
        if self._layer == 0:
            self._shared.make_room(key)
        self.length += key.shape[2]
        return self._shared.write(self._layer, key, value)

    def select(self, rows: Tensor) -> None:
        """See AttentionCache."""
        if self._layer == 0:
            self._shared.select(rows)


def share(state: DecoderState) -> DecoderState:
    """The state, before its first step, with one cache for self-attention of all layers."""
    shared = SharedCache(len(state.layers))
    for number, layer in enumerate(state.layers):
        layer.self_attention = LayerPart(shared, number)
    return state
