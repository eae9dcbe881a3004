"""An optimizer whose states are small: two vectors for each matrix."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field
from typing_extensions import override

from configs.components import Optimizer, component
from configs.components.training import Scope
from configs.fields import PositiveFloat

if TYPE_CHECKING:
    import torch


@component("optimizer", "adafactor")
class Adafactor(Optimizer):
    """Adafactor (Shazeer and Stern, 2018), by torch; at ZeRO stage 0.

    `lr` is the largest rate relative to a weight matrix's own size; torch lowers it to 1 / sqrt(step).
    """

    states: ClassVar[tuple[str, ...]] = ("row_var", "col_var", "variance")
    scope: ClassVar[Scope] = "row"
    numbers: ClassVar[tuple[str, ...] | None] = ()
    group_numbers: ClassVar[tuple[str, ...] | None] = ()
    beta2_decay: Annotated[float, Field(le=0, allow_inf_nan=False)] = -0.8
    """Exponent of the step in 1 - step^beta2_decay, the decay of the averages of squared gradients."""
    eps: PositiveFloat = 1e-3
    """Lower bound of a matrix's size, to which its update is relative."""
    clip_threshold: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 1.0
    """Root mean square of a matrix's update, before the rate, to which larger ones are scaled down."""

    @override
    def states_of(self, name: str, shape: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
        if len(shape) < 2:
            return {"variance": shape}
        return {"row_var": (*shape[:-1], 1), "col_var": (*shape[:-2], 1, shape[-1])}

    @override
    def build(self, groups: Sequence[Mapping[str, Any]]) -> "torch.optim.Optimizer":
        import torch

        return torch.optim.Adafactor(
            [dict(group) for group in groups],
            lr=0.0,
            beta2_decay=self.beta2_decay,
            eps=(None, self.eps),
            d=self.clip_threshold,
        )
