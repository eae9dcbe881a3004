"""The base class of attentions."""

import dataclasses
from collections.abc import Iterator
from typing import Any, ClassVar

from configs.components.model.costs import NamedShape, Storage
from configs.components.model.part import ModelPart


@dataclasses.dataclass(kw_only=True, frozen=True)
class Attention(ModelPart):
    """Attention of positions to their own sequence, or to the source."""

    has_weights: ClassVar[bool] = False
    """Whether its module has `weights`, which pictures of attention and word alignments need."""

    def problems_at(self, width: int) -> Iterator[str]:
        """Errors of the fields in a model of this width, one line each."""
        return iter(())

    def rotated_width(self, width: int) -> int | None:
        """Width of the heads whose queries and keys can be rotated; None if rotation is not supported."""
        return None

    def build(self, width: int, rotation: Any) -> Any:
        """The module, which is called like `model.attention.MultiHeadAttention`.

        `forward(queries_BLD, memory_BSD, bias=None, *, is_causal=False, cache=None, memory_is_fixed=False)` gives
        (B, L, D). Search hands it a cache (`model.attention.AttentionCache`), one position after the other.

        Args:
            width: of the model.
            rotation: rotates queries and keys by their positions; None without rotary positions, and in
                cross-attention.
        """
        raise NotImplementedError

    def parameters(self, width: int) -> Iterator[NamedShape]:
        """The module's parameters in order, without the rotation's, which come last."""
        raise self.undeclared("parameters")

    def flops(self, width: int, *, query_tokens: int, memory_tokens: int, memory_length: int) -> int:
        """FLOPs of the matmuls of a forward pass, counting a multiplication and an addition as two.

        Args:
            width: of the model.
            query_tokens, memory_tokens: of the batch.
            memory_length: padded length of the memory's rows.
        """
        raise self.undeclared("flops")

    def activation_bytes(self, width: int, *, rows: int, length: int, memory_length: int, storage: Storage) -> int:
        """Bytes kept for the backward pass, without the hidden states of queries and memory.

        Args:
            width: of the model.
            rows: of the batch.
            length, memory_length: padded.
            storage: of the device.
        """
        raise self.undeclared("activation_bytes")

    def widest(self, width: int) -> int:
        """Elements per position of its widest activation."""
        return width

    def cached_numbers(self, width: int) -> int:
        """Elements that search caches per position, in each of a decoder layer's two attentions."""
        raise self.undeclared("cached_numbers")
