"""The base class of positional encodings."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from configs.components.model.costs import NamedShape, Storage
from configs.components.model.part import ModelPart


@dataclasses.dataclass(kw_only=True, frozen=True)
class Positions(ModelPart):
    """Positional encoding: added to embeddings, or applied as a rotation to queries and keys of self-attention."""

    def problems_at(self, width: int, head_width: int | None) -> Iterator[str]:
        """Errors in a model with these widths, one line each, beginning with the field's path in `model`.

        Args:
            width: width of the model.
            head_width: see `Attention.rotated_width`.
        """
        return iter(())

    def build(self, num_positions: int, width: int) -> Any:
        """The module for embeddings: `forward(x_BLD, start=0)`, where `start` is the position of the first embedding.

        It raises ValueError for positions beyond the last (`model.positions.check_length`).

        Args:
            num_positions: length of the longest sequence.
            width: width of the model.
        """
        raise NotImplementedError

    def build_rotation(self, num_positions: int, head_width: int) -> Any:
        """The module that rotates queries and keys of self-attention, `forward(x_BHLK, start=0)`; None without one."""
        return None

    def parameters(self, num_positions: int, width: int) -> Iterator[NamedShape]:
        """Parameters of `build`'s module, in order. Source and target have a module each."""
        return iter(())

    def rotation_parameters(self, num_positions: int, head_width: int) -> Iterator[NamedShape]:
        """Parameters of `build_rotation`'s module, in order. Every layer has a module."""
        return iter(())

    def activation_bytes(self, width: int, tokens: int, storage: Storage) -> int:
        """Bytes that `build`'s module keeps for the backward pass."""
        return 0

    def rotation_bytes(self, numbers: int, storage: Storage) -> int:
        """Bytes that `build_rotation`'s module keeps for the backward pass.

        Args:
            numbers: number of elements of a layer's queries and keys.
            storage: how the device stores activations.
        """
        return 0

    def table(self, module: Any, num_positions: int, width: int) -> Any:
        """The table that is added to embeddings, (num_positions, width) in fp32; None if exports need no table.

        Args:
            module: the module from `build`.
            num_positions, width: those of the model.
        """
        return None

    def has_own_table(self, program: str) -> bool:
        """Whether a program computes the same table itself, perhaps with another order of dimensions."""
        return False

    def sines_first(self, width: int) -> Sequence[int] | None:
        """The permutation of dimensions that puts all sines before all cosines; None if they are in this order."""
        return None
