"""What tells a model where a token stands."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from configs.components.model.costs import NamedShape, Storage
from configs.components.model.part import ModelPart


@dataclasses.dataclass(kw_only=True, frozen=True)
class Positions(ModelPart):
    """Where a token stands: added to its embedding, or turned into the queries and keys of self-attention."""

    def problems_at(self, width: int, head_width: int | None) -> Iterator[str]:
        """What is wrong in such a model, one line each, which begins with the field's place in `model`.

        Args:
            width: of the model.
            head_width: see `Attention.rotated_width`.
        """
        return iter(())

    def build(self, num_positions: int, width: int) -> Any:
        """What is done to embeddings: `forward(x_BLD, start=0)`, where `start` is the first one's position.

        It raises ValueError beyond the last position (`model.positions.check_length`).

        Args:
            num_positions: longest sequence.
            width: of the model.
        """
        raise NotImplementedError

    def build_rotation(self, num_positions: int, head_width: int) -> Any:
        """What is done to queries and keys of self-attention: `forward(x_BHLK, start=0)`; None: nothing."""
        return None

    def parameters(self, num_positions: int, width: int) -> Iterator[NamedShape]:
        """Those of `build`, in their order: of the source's positions, and as many again of the target's."""
        return iter(())

    def rotation_parameters(self, num_positions: int, head_width: int) -> Iterator[NamedShape]:
        """Those of `build_rotation`, in their order: of every layer."""
        return iter(())

    def activation_bytes(self, width: int, tokens: int, storage: Storage) -> int:
        """What `build` keeps for the backward pass."""
        return 0

    def rotation_bytes(self, numbers: int, storage: Storage) -> int:
        """What `build_rotation` keeps for the backward pass.

        Args:
            numbers: of queries and keys of a layer.
            storage: of the device.
        """
        return 0

    def table(self, module: Any, num_positions: int, width: int) -> Any:
        """What is added to embeddings, (num_positions, width) in fp32; None: exports have no table.

        Args:
            module: see `build`.
            num_positions, width: of the model.
        """
        return None

    def has_own_table(self, program: str) -> bool:
        """Whether a program computes this very table by itself, but for the order of the dimensions."""
        return False

    def sines_first(self, width: int) -> Sequence[int] | None:
        """The order of dimensions in which the table has all sines before all cosines; None: it has."""
        return None
