"""The base class of residual connections."""

import dataclasses
from collections.abc import Iterator
from typing import Any, ClassVar

from configs.components.model.costs import NamedShape, Storage
from configs.components.model.norm import Norm
from configs.components.model.part import ModelPart


@dataclasses.dataclass(kw_only=True, frozen=True)
class Residual(ModelPart):
    """The order of a sub-layer, its norm, dropout and the residual sum."""

    is_post_norm: ClassVar[bool] = False
    """Whether norms come after the sum. If not, nothing normalises the residual stream, and it needs a final norm."""

    def build(self, width: int, norm: Norm, dropout: float, *, is_last: bool) -> Any:
        """The module: `forward(x, sublayer)`, (..., width) to (..., width).

        Args:
            width: width of the model.
            norm: component that builds the norms.
            dropout: probability of dropout.
            is_last: whether the sub-layer is the last of its layer.
        """
        raise NotImplementedError

    def parameters(self, width: int, norm: Norm, *, is_last: bool) -> Iterator[NamedShape]:
        """The module's parameters, in order; by default those of one norm."""
        yield from ((f"norm.{name}", shape) for name, shape in norm.parameters(width))

    def activation_bytes(
        self, width: int, norm: Norm, dropout: float, *, tokens: int, is_last: bool, storage: Storage
    ) -> int:
        """Bytes kept for the backward pass: the sub-layer's input, norm and dropout."""
        mask = storage.masks(tokens * width, dropout)
        given = tokens * width * storage.element
        return given + norm.activation_bytes(width, tokens, storage) + self.num_masks(is_last=is_last) * mask

    def num_masks(self, *, is_last: bool) -> int:
        """Number of dropout masks."""
        return 1

    def needs_result(self, dropout: float) -> bool:
        """Whether a gradient needs the sub-layer's output; if not, recomputation skips it."""
        return True
