"""The base class of optimizers."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from configs.components.registry import Component
from configs.fields import NonNegativeFloat, PositiveFloat


@dataclasses.dataclass(kw_only=True, frozen=True)
class Optimizer(Component):
    """An optimizer. It must work element by element, because ZeRO shards its states over the ranks."""

    lr: PositiveFloat = 1e-3
    """Peak learning rate."""
    weight_decay: NonNegativeFloat = 0.0
    """Weight decay of matrices; norms and biases have none."""
    clip_norm: NonNegativeFloat = 1.0
    """Maximum norm of the whole gradient, which is scaled down to it; 0 does not clip."""

    states: ClassVar[tuple[str, ...]] = ()
    """Names, in torch's `optimizer.state`, of the tensors that it keeps for each parameter after the first step. Each
    has the parameter's shape. They are saved, sharded, offloaded and counted by plans. There must be at least one.
    Numbers beside them, the same for all parameters, and those of groups are saved too; anything else is refused.
    """

    def build(self, groups: Sequence[Mapping[str, Any]]) -> Any:
        """The torch.optim.Optimizer, with a learning rate of 0.

        Args:
            groups: parameter groups, each with its `weight_decay`.
        """
        raise NotImplementedError
