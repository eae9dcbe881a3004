"""The base class of optimizers."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from configs.components.registry import Component
from configs.fields import NonNegativeFloat, PositiveFloat


@dataclasses.dataclass(kw_only=True, frozen=True)
class Optimizer(Component):
    """An optimizer. ZeRO partitions its states over the ranks, so it must work element by element."""

    lr: PositiveFloat = 1e-3
    """Peak learning rate."""
    weight_decay: NonNegativeFloat = 0.0
    """Weight decay of matrices; norms and biases have none."""
    clip_norm: NonNegativeFloat = 1.0
    """Maximum of the gradient's global norm; 0 does not clip."""

    states: ClassVar[tuple[str, ...]] = ()
    """Names in the optimizer's `state` of the tensors, of a parameter's size, that it keeps for each parameter from its
    first step on: these are saved, partitioned, offloaded and planned for. At least one.
    """

    def build(self, groups: Sequence[Mapping[str, Any]]) -> Any:
        """The optimizer, a torch.optim.Optimizer, at a learning rate of 0.

        Args:
            groups: parameter groups, each with its `weight_decay`.
        """
        raise NotImplementedError
