"""Norms of the reference systems: of a sample's deviation, and with scalars for vectors."""

import torch
from torch import Tensor, nn


class ScalarNorm(nn.Module):
    """weight * (x - mean) / (deviation + eps) + bias, with two scalars and the sample's deviation (of n - 1).

    Args:
        width: of x.
        eps: added to the deviation.
        initial_bias: what the bias begins with; the weight begins with 1.
    """

    def __init__(self, width: int, eps: float, *, initial_bias: float = 0.0) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(1))
        self.bias = nn.Parameter(torch.full((1,), initial_bias))

    def forward(self, x: Tensor) -> Tensor:
        """(..., D) to (..., D)."""
        centred = x - x.mean(-1, keepdim=True)
        return self.weight * centred / (x.std(-1, keepdim=True) + self.eps) + self.bias


class SampleNorm(nn.Module):
    """weight * (x - mean) / sqrt(variance + eps) + bias, with the sample's variance (of n - 1)."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        """(..., D) to (..., D)."""
        centred = x - x.mean(-1, keepdim=True)
        return self.weight * centred / (x.var(-1, keepdim=True) + self.eps).sqrt() + self.bias
