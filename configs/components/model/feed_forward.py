"""What a feed-forward sub-layer is."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from configs.components.model.costs import NamedShape, Storage
from configs.components.model.part import ModelPart


@dataclasses.dataclass(kw_only=True, frozen=True)
class FeedForward(ModelPart):
    """A function of each position by itself."""

    program_names: ClassVar[Mapping[str, str]] = {}
    """What each of `programs` calls the activation."""

    def build(self, width: int) -> Any:
        """The module: (..., width) to the same."""
        raise NotImplementedError

    def parameters(self, width: int) -> Iterator[NamedShape]:
        """Those of the module, in their order."""
        raise self.unsaid("parameters")

    def flops(self, width: int, tokens: int) -> int:
        """Of the matmuls of a forward pass, a multiplication and an addition being two."""
        raise self.unsaid("flops")

    def last_flops(self, width: int, tokens: int) -> int:
        """Of these, the products whose result no gradient of the sub-layer is made of: not computed a second time."""
        return 0

    def activation_bytes(self, width: int, tokens: int, storage: Storage) -> int:
        """What a forward pass keeps for the backward pass, beside its input."""
        raise self.unsaid("activation_bytes")

    def widest(self, width: int) -> int:
        """Numbers of a position in the widest of its activations."""
        return width
