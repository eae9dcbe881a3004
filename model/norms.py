"""Normalisation over the model's width, by name; each kind is made from (width, eps)."""

from collections.abc import Callable

from torch import nn

NORMS: dict[str, Callable[[int, float], nn.Module]] = {
    "layer": lambda width, eps: nn.LayerNorm(width, eps=eps),  # Ba et al., 2016
    "rms": lambda width, eps: nn.RMSNorm(width, eps=eps),  # Zhang and Sennrich, 2019
}
