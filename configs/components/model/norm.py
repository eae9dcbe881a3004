"""The base class of norms."""

import dataclasses
from collections.abc import Iterator
from typing import Any

from configs.components.model.costs import NamedShape, Storage
from configs.components.model.part import ModelPart


@dataclasses.dataclass(kw_only=True, frozen=True)
class Norm(ModelPart):
    """Normalisation of each position over the model's width."""

    def build(self, width: int) -> Any:
        """The module: (..., width) to (..., width)."""
        raise NotImplementedError

    def parameters(self, width: int) -> Iterator[NamedShape]:
        """The module's parameters, in order."""
        raise self.undeclared("parameters")

    def activation_bytes(self, width: int, tokens: int, storage: Storage) -> int:
        """Bytes kept for the backward pass, including the input."""
        raise self.undeclared("activation_bytes")

    def plain_eps(self, width: int) -> float:
        """The eps with which the LayerNorm or RMSNorm of other programs computes the same result."""
        raise NotImplementedError
