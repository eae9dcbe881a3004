"""What an optimizer is."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from configs.components.registry import Component
from configs.fields import NonNegativeFloat, PositiveFloat


@dataclasses.dataclass(kw_only=True, frozen=True)
class Optimizer(Component):
    """What steps on the gradients. ZeRO divides its states between the ranks, so it steps element by element."""

    lr: PositiveFloat = 1e-3
    """Peak learning rate."""
    weight_decay: NonNegativeFloat = 0.0
    """On matrices; norms and biases are left alone."""
    clip_norm: NonNegativeFloat = 1.0
    """Of the gradient's global norm; 0 clips nothing."""

    states: ClassVar[tuple[str, ...]] = ()
    """Tensors, as large as the parameter, that it keeps of each from its first step on, by their names in the
    optimizer's `state`: what is saved, divided, offloaded and planned for. At least one."""

    def build(self, groups: Sequence[Mapping[str, Any]]) -> Any:
        """The optimizer, a torch.optim.Optimizer, at a learning rate of 0.

        Args:
            groups: parameter groups, each with its `weight_decay`.
        """
        raise NotImplementedError
