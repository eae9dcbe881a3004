"""An optimizer of whole matrices."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from typing_extensions import override

from configs.components import Optimizer, component
from configs.components.training import Scope
from configs.fields import PositiveFloat, Probability

if TYPE_CHECKING:
    import torch


@component("optimizer", "muon")
class Muon(Optimizer):
    """Muon (Jordan et al., 2024) for the matrices of encoder and decoder layers, AdamW for all else.

    AdamW has embeddings, the output layer, norms and biases. Both are torch's. At ZeRO stages 1 to 3 momentum stays in
    pieces, and the ranks gather one matrix after the other.
    """

    states: ClassVar[tuple[str, ...]] = ("momentum_buffer", "exp_avg", "exp_avg_sq")
    scope: ClassVar[Scope] = "matrix"
    gathers: ClassVar[bool] = True
    numbers: ClassVar[tuple[str, ...] | None] = ()
    group_numbers: ClassVar[tuple[str, ...] | None] = ()
    momentum: Probability = 0.95
    """Decay of Muon's average of gradients."""
    nesterov: bool = True
    """Look ahead by the momentum (Nesterov)."""
    adjust_lr: Literal["match_rms_adamw", "original"] = "match_rms_adamw"
    """Factor of the rate by a matrix's shape. match_rms_adamw: 0.2 sqrt(larger side), with which updates are as large
    as AdamW's, so that both go by one rate (Liu et al., 2025); original: sqrt(max(1, rows / columns))."""
    beta1: Probability = 0.9
    """AdamW's decay of the average of gradients."""
    beta2: Probability = 0.98
    """AdamW's decay of the average of squared gradients."""
    eps: PositiveFloat = 1e-9
    """Added to AdamW's denominator."""

    @override
    def states_of(self, name: str, shape: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
        is_of_muon = len(shape) == 2 and name.startswith(("encoder.", "decoder."))
        return dict.fromkeys(("momentum_buffer",) if is_of_muon else ("exp_avg", "exp_avg_sq"), shape)

    @override
    def build(self, groups: Sequence[Mapping[str, Any]]) -> "torch.optim.Optimizer":
        from trainer.engines import muon

        return muon.MuonAndAdamW(
            [dict(group) for group in groups],
            muon={"momentum": self.momentum, "nesterov": self.nesterov, "adjust_lr_fn": self.adjust_lr},
            adamw={"betas": (self.beta1, self.beta2), "eps": self.eps, "fused": True},
        )
