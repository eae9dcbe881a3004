"""What an attention is."""

import dataclasses
from collections.abc import Iterator
from typing import Any, ClassVar

from configs.components.model.costs import NamedShape, Storage
from configs.components.model.part import ModelPart


@dataclasses.dataclass(kw_only=True, frozen=True)
class Attention(ModelPart):
    """Attention of positions to their own sequence, or to the source."""

    has_weights: ClassVar[bool] = False
    """Whether its module has `weights`, which pictures of attention and word alignments are made of."""

    def problems_at(self, width: int) -> Iterator[str]:
        """What is wrong with the fields in a model of this width, one line each."""
        return iter(())

    def rotated_width(self, width: int) -> int | None:
        """Width of the heads whose queries and keys positions may turn; None: it takes no rotation."""
        return None

    def build(self, width: int, rotation: Any) -> Any:
        """The module, called as `model.attention.MultiHeadAttention` is.

        `forward(queries_BLD, memory_BSD, bias=None, *, is_causal=False, cache=None, memory_is_fixed=False)` gives
        (B, L, D). Search hands it a cache (`model.attention.AttentionCache`), one position after the other.

        Args:
            width: of the model.
            rotation: turns queries and keys by their positions; None where positions are not told so, and in attention
                to the source.
        """
        raise NotImplementedError

    def parameters(self, width: int) -> Iterator[NamedShape]:
        """Those of the module in their order, but for the rotation's, which come last."""
        raise self.unsaid("parameters")

    def flops(self, width: int, *, query_tokens: int, memory_tokens: int, memory_length: int) -> int:
        """Of the matmuls of a forward pass, a multiplication and an addition being two.

        Args:
            width: of the model.
            query_tokens, memory_tokens: of the batch.
            memory_length: padded length of the memory's rows.
        """
        raise self.unsaid("flops")

    def activation_bytes(self, width: int, *, rows: int, length: int, memory_length: int, storage: Storage) -> int:
        """What a forward pass keeps for the backward pass, beside the queries' and the memory's hidden states.

        Args:
            width: of the model.
            rows: of the batch.
            length, memory_length: padded.
            storage: of the device.
        """
        raise self.unsaid("activation_bytes")

    def widest(self, width: int) -> int:
        """Numbers of a position in the widest of its activations."""
        return width

    def cached_numbers(self, width: int) -> int:
        """Numbers that search keeps of every position of a decoder layer, in each of its two attentions."""
        raise self.unsaid("cached_numbers")
