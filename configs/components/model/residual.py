"""What joins a sub-layer with the residual stream."""

import dataclasses
from collections.abc import Iterator
from typing import Any, ClassVar

from configs.components.model.costs import NamedShape, Storage
from configs.components.model.norm import Norm
from configs.components.model.part import ModelPart


@dataclasses.dataclass(kw_only=True, frozen=True)
class Residual(ModelPart):
    """In which order a sub-layer, its norm, dropout and the residual stream are joined."""

    is_post_norm: ClassVar[bool] = False
    """Whether norms stand behind the sum. Where they do not, the stream itself is not normed: a last norm is wanted."""

    def build(self, width: int, norm: Norm, dropout: float, *, is_last: bool) -> Any:
        """The module: `forward(x, sublayer)`, (..., width) to the same.

        Args:
            width: of the model.
            norm: to build as many of as are needed.
            dropout: its probability.
            is_last: whether the sub-layer is the last of its layer.
        """
        raise NotImplementedError

    def parameters(self, width: int, norm: Norm, *, is_last: bool) -> Iterator[NamedShape]:
        """Those of the module, in their order: unless said otherwise, of one norm."""
        yield from ((f"norm.{name}", shape) for name, shape in norm.parameters(width))

    def activation_bytes(
        self, width: int, norm: Norm, dropout: float, *, tokens: int, is_last: bool, storage: Storage
    ) -> int:
        """What a forward pass keeps for the backward pass: what the sub-layer is given, norm and dropout."""
        mask = storage.masks(tokens * width, dropout)
        given = tokens * width * storage.element
        return given + norm.activation_bytes(width, tokens, storage) + self.num_masks(is_last=is_last) * mask

    def num_masks(self, *, is_last: bool) -> int:
        """How many times dropout is applied."""
        return 1

    def needs_result(self, dropout: float) -> bool:
        """Whether any gradient is made of what the sub-layer gives: else that is not computed a second time."""
        return True
