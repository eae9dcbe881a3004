"""Modules and initial weights of the reference systems, where they differ from those of the paper."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from model.loss import OutputLayer
from model.positions import LearnedPositions
from model.sublayers import Residual


def torch_defaults(model: nn.Module, width: int) -> None:
    """torch's defaults: linear layers uniform within 1 / sqrt(inputs), embeddings standard normal."""
    for module in model.modules():
        if isinstance(module, OutputLayer):
            for parameter in module.parameters():
                nn.init.uniform_(parameter, -1 / math.sqrt(width), 1 / math.sqrt(width))
        elif isinstance(module, LearnedPositions):
            nn.init.normal_(module.weight)


def xavier_matrices(model: nn.Module, width: int) -> None:
    """All matrices Xavier-uniform (Glorot and Bengio, 2010), embeddings and output included; biases as in torch."""
    torch_defaults(model, width)
    for parameter in model.parameters():
        if parameter.ndim > 1:
            nn.init.xavier_uniform_(parameter)


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


class PostNormDropoutLast(Residual):
    """dropout(norm(x + sublayer(x)))."""

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """(..., D) to (..., D)."""
        out: Tensor = self.dropout(self.norm(x + sublayer(x)))
        return out


class PostNormBlockDropout(Residual):
    """norm(x + sublayer(x)); for the last sub-layer of a layer dropout(norm(x + dropout(sublayer(x))))."""

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """(..., D) to (..., D)."""
        if not self.is_last:
            inner: Tensor = self.norm(x + sublayer(x))
            return inner
        out: Tensor = self.dropout(self.norm(x + self.dropout(sublayer(x))))
        return out
