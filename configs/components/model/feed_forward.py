"""The base class of feed-forward sub-layers."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from configs.components.model.costs import NamedShape, Storage
from configs.components.model.part import ModelPart


@dataclasses.dataclass(kw_only=True, frozen=True)
class FeedForward(ModelPart):
    """The feed-forward sub-layer, a function applied to each position separately."""

    program_names: ClassVar[Mapping[str, str]] = {}
    """The activation function's name in each of `programs`."""

    def build(self, width: int) -> Any:
        """The module: (..., width) to (..., width)."""
        raise NotImplementedError

    def parameters(self, width: int) -> Iterator[NamedShape]:
        """The module's parameters, in order."""
        raise self.undeclared("parameters")

    def flops(self, width: int, tokens: int) -> int:
        """FLOPs of the matmuls of a forward pass, where a multiplication and an addition are two."""
        raise self.undeclared("flops")

    def last_flops(self, width: int, tokens: int) -> int:
        """FLOPs of the matmuls whose results no gradient needs, so that recomputation skips them."""
        return 0

    def activation_bytes(self, width: int, tokens: int, storage: Storage) -> int:
        """Bytes kept for the backward pass, without the input."""
        raise self.undeclared("activation_bytes")

    def widest(self, width: int) -> int:
        """Elements per position of its widest activation."""
        return width
