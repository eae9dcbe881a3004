"""Norms of the reference systems: with the sample standard deviation, or with scalar weight and bias."""

import torch
from torch import Tensor, nn


class ScalarNorm(nn.Module):
    """weight * (x - mean) / (std + eps) + bias, with scalar weight and bias and the sample std (divisor n - 1).

    Args:
        width: of x; unused, as the parameters are scalars.
        eps: added to the std.
        initial_bias: initial value of the bias; that of the weight is 1.
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
    """weight * (x - mean) / sqrt(variance + eps) + bias, with the sample variance (divisor n - 1)."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        """(..., D) to (..., D)."""
        centred = x - x.mean(-1, keepdim=True)
        return self.weight * centred / (x.var(-1, keepdim=True) + self.eps).sqrt() + self.bias
