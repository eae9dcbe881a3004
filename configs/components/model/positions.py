"""The base class of positions, which tell a model where a token is."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from configs.components.model.costs import NamedShape, Storage
from configs.components.model.part import ModelPart


@dataclasses.dataclass(kw_only=True, frozen=True)
class Positions(ModelPart):
    """Positions of tokens: added to embeddings, or applied as a rotation to queries and keys of self-attention."""

    def problems_at(self, width: int, head_width: int | None) -> Iterator[str]:
        """Errors in such a model, one line each, beginning with the field's place in `model`.

        Args:
            width: of the model.
            head_width: see `Attention.rotated_width`.
        """
        return iter(())

    def build(self, num_positions: int, width: int) -> Any:
        """The module for embeddings: `forward(x_BLD, start=0)`, where `start` is the position of the first one.

        It raises ValueError beyond the last position (`model.positions.check_length`).

        Args:
            num_positions: longest sequence.
            width: of the model.
        """
        raise NotImplementedError

    def build_rotation(self, num_positions: int, head_width: int) -> Any:
        """The module for queries and keys of self-attention: `forward(x_BHLK, start=0)`; None without rotation."""
        return None

    def parameters(self, num_positions: int, width: int) -> Iterator[NamedShape]:
        """Parameters of `build`'s module, in order; source and target positions each have them."""
        return iter(())

    def rotation_parameters(self, num_positions: int, head_width: int) -> Iterator[NamedShape]:
        """Parameters of `build_rotation`'s module, in order; every layer has them."""
        return iter(())

    def activation_bytes(self, width: int, tokens: int, storage: Storage) -> int:
        """Bytes that `build`'s module keeps for the backward pass."""
        return 0

    def rotation_bytes(self, numbers: int, storage: Storage) -> int:
        """Bytes that `build_rotation`'s module keeps for the backward pass.

        Args:
            numbers: elements of a layer's queries and keys.
            storage: of the device.
        """
        return 0

    def table(self, module: Any, num_positions: int, width: int) -> Any:
        """The table that is added to embeddings, (num_positions, width) in fp32; None if exports need no table.

        Args:
            module: see `build`.
            num_positions, width: of the model.
        """
        return None

    def has_own_table(self, program: str) -> bool:
        """Whether a program computes the same table itself, up to the order of dimensions."""
        return False

    def sines_first(self, width: int) -> Sequence[int] | None:
        """The order of dimensions that puts all sines before all cosines; None if they are so already."""
        return None
