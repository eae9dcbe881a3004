"""The position-wise feed-forward sub-layer."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from model.dropout import Dropout

Activation = Callable[[Tensor], Tensor]


def unchanged(x: Tensor) -> Tensor:
    """No activation."""
    return x


class FeedForward(nn.Module):
    """linear, activation, dropout, linear (Vaswani et al., 2017, equation 2).

    The activation is ReLU, GELU (Hendrycks and Gimpel, 2016), SiLU (Elfwing et al., 2018) or none.
    """

    def __init__(
        self, width: int, inner_width: int, activation: Activation, dropout: float, *, bias: bool = True
    ) -> None:
        super().__init__()
        self.inner = nn.Linear(width, inner_width, bias=bias)
        self.outer = nn.Linear(inner_width, width, bias=bias)
        self.activation = activation
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """(..., D) to (..., D)."""
        inner = self.inner(x)
        if self.activation is F.relu:  # ReLU and dropout commute; applied last, ReLU can work in place
            dropped = self.dropout(inner)
            hidden = F.relu(dropped, inplace=dropped is not inner or not torch.is_grad_enabled())
        else:
            hidden = self.dropout(self.activation(inner))
        out: Tensor = self.outer(hidden)
        return out


class GatedFeedForward(nn.Module):
    """The inner layer is gated by a second one through an activation: SwiGLU with SiLU (Shazeer, 2020)."""

    def __init__(
        self, width: int, inner_width: int, activation: Activation, dropout: float, *, bias: bool = True
    ) -> None:
        super().__init__()
        self.inner = nn.Linear(width, inner_width, bias=bias)
        self.gate = nn.Linear(width, inner_width, bias=bias)
        self.outer = nn.Linear(inner_width, width, bias=bias)
        self.activation = activation
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """(..., D) to (..., D)."""
        out: Tensor = self.outer(self.dropout(self.activation(self.gate(x)) * self.inner(x)))
        return out
