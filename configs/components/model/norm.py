"""What a norm is."""

import dataclasses
from collections.abc import Iterator
from typing import Any

from configs.components.model.costs import NamedShape, Storage
from configs.components.model.part import ModelPart


@dataclasses.dataclass(kw_only=True, frozen=True)
class Norm(ModelPart):
    """Normalisation of each position over the model's width."""

    def build(self, width: int) -> Any:
        """The module: (..., width) to the same."""
        raise NotImplementedError

    def parameters(self, width: int) -> Iterator[NamedShape]:
        """Those of the module, in their order."""
        raise self.unsaid("parameters")

    def activation_bytes(self, width: int, tokens: int, storage: Storage) -> int:
        """What a forward pass keeps for the backward pass, its input with it."""
        raise self.unsaid("activation_bytes")

    def plain_eps(self, width: int) -> float:
        """What LayerNorm or RMSNorm, as other programs have them, add to the variance where they compute the same."""
        raise NotImplementedError
