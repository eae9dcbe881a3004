"""The base class of attentions."""

import dataclasses
from collections.abc import Iterator
from typing import Any, ClassVar

from configs.components.model.costs import NamedShape, Storage
from configs.components.model.part import ModelPart


@dataclasses.dataclass(kw_only=True, frozen=True)
class Attention(ModelPart):
    """Attention: self-attention of both stacks, and the decoder's cross-attention to the source."""

    has_weights: ClassVar[bool] = False
    """Whether its module has a method `weights`, which attention maps and word alignments need."""

    def problems_at(self, width: int) -> Iterator[str]:
        """Errors of the fields in a model of this width, one line each."""
        return iter(())

    def rotated_width(self, width: int) -> int | None:
        """Width of the heads, whose queries and keys rotary positions rotate; None if rotation is not supported."""
        return None

    def build(self, width: int, rotation: Any) -> Any:
        """The module, with the interface of `model.attention.MultiHeadAttention`.

        `forward(queries_BLD, memory_BSD, bias=None, *, is_causal=False, cache=None, memory_is_fixed=False)` returns
        (B, L, D). Search calls it for one position after the other, with a cache (`model.attention.AttentionCache`).

        Args:
            width: width of the model.
            rotation: module that rotates queries and keys by their positions; None without rotary positions, and in
                cross-attention.
        """
        raise NotImplementedError

    def parameters(self, width: int) -> Iterator[NamedShape]:
        """The module's parameters in order, without those of the rotation, which come last."""
        raise self.undeclared("parameters")

    def flops(self, width: int, *, query_tokens: int, memory_tokens: int, memory_length: int) -> int:
        """FLOPs of the matmuls of a forward pass, where a multiplication and an addition are two.

        Args:
            width: width of the model.
            query_tokens, memory_tokens: numbers of tokens in the batch.
            memory_length: padded length of the memory's rows.
        """
        raise self.undeclared("flops")

    def activation_bytes(self, width: int, *, rows: int, length: int, memory_length: int, storage: Storage) -> int:
        """Bytes kept for the backward pass, without the hidden states of queries and memory.

        Args:
            width: width of the model.
            rows: number of rows in the batch.
            length, memory_length: padded lengths.
            storage: how the device stores activations.
        """
        raise self.undeclared("activation_bytes")

    def workspace_bytes(self, width: int, *, tokens: int, rows: int, storage: Storage) -> int:
        """Bytes that its backward pass needs beside gradients; a layer frees them before the next begins.

        Args:
            width: width of the model.
            tokens: number of queries in the batch.
            rows: number of rows that they stand in.
            storage: how the device stores activations.
        """
        return 0

    def widest(self, width: int) -> int:
        """Elements per position of its widest activation."""
        return width

    def cached_numbers(self, width: int) -> int:
        """Elements per position that search caches in each of a decoder layer's two attentions."""
        raise self.undeclared("cached_numbers")
