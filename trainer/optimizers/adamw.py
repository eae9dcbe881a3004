"""The optimizer of nearly every Transformer."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from typing_extensions import override

from configs.components import Optimizer, component
from configs.fields import PositiveFloat, Probability

if TYPE_CHECKING:
    import torch


@component("optimizer", "adamw")
class AdamW(Optimizer):
    """AdamW (Loshchilov and Hutter, 2019), by torch."""

    states: ClassVar[tuple[str, ...]] = ("exp_avg", "exp_avg_sq")
    numbers: ClassVar[tuple[str, ...] | None] = ()
    group_numbers: ClassVar[tuple[str, ...] | None] = ()
    beta1: Probability = 0.9
    """Decay of the average of gradients."""
    beta2: Probability = 0.98
    """Decay of the average of squared gradients."""
    eps: PositiveFloat = 1e-9
    """Added to the denominator."""

    @override
    def build(self, groups: Sequence[Mapping[str, Any]]) -> "torch.optim.Optimizer":
        import torch

        return torch.optim.AdamW(
            [dict(group) for group in groups], lr=0.0, betas=(self.beta1, self.beta2), eps=self.eps, fused=True
        )
