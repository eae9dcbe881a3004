"""The usual optimizers: AdamW of nearly every Transformer, Adafactor of small states, Muon of whole matrices."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field
from typing_extensions import override

from configs.components import Optimizer, component
from configs.components.training import Scope
from configs.fields import PositiveFloat, Probability

if TYPE_CHECKING:
    import torch


@component("optimizer", "adamw")
class AdamW(Optimizer):
    """AdamW (Loshchilov and Hutter, 2019), by torch."""

    states: ClassVar[tuple[str, ...]] = ("exp_avg", "exp_avg_sq")
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


@component("optimizer", "adafactor")
class Adafactor(Optimizer):
    """Adafactor (Shazeer and Stern, 2018), by torch; at ZeRO stage 0.

    `lr` is the largest rate relative to a weight matrix's own size; torch lowers it to 1 / sqrt(step).
    """

    states: ClassVar[tuple[str, ...]] = ("row_var", "col_var", "variance")
    scope: ClassVar[Scope] = "row"
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


@component("optimizer", "muon")
class Muon(Optimizer):
    """Muon (Jordan et al., 2024) for the matrices of encoder and decoder layers, AdamW for all else.

    AdamW has embeddings, the output layer, norms and biases. Both are torch's. At ZeRO stages 1 to 3 momentum stays in
    pieces, and the ranks gather one matrix after the other.
    """

    states: ClassVar[tuple[str, ...]] = ("momentum_buffer", "exp_avg", "exp_avg_sq")
    scope: ClassVar[Scope] = "matrix"
    gathers: ClassVar[bool] = True
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
