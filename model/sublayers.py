"""What layers are made of besides attention: dropout, the feed-forward sub-layer, residual connections."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Dropout(nn.Module):
    """In training, zeroes elements with probability `p` and scales the others by 1 / (1 - p)."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """`x` (any shape), with elements zeroed in training."""
        return F.dropout(x, self.p) if self.training and self.p > 0 else x


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


class GatedFeedForward(FeedForward):
    """The inner layer is gated by a second one through an activation: SwiGLU with SiLU (Shazeer, 2020)."""

    def __init__(
        self, width: int, inner_width: int, activation: Activation, dropout: float, *, bias: bool = True
    ) -> None:
        super().__init__(width, inner_width, activation, dropout, bias=bias)
        self.gate = nn.Linear(width, inner_width, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """(..., D) to (..., D)."""
        out: Tensor = self.outer(self.dropout(self.activation(self.gate(x)) * self.inner(x)))
        return out


class Residual(nn.Module):
    """Base of all orders: has a norm and dropout.

    Args:
        norm: a norm of the model's width.
        dropout: dropout probability.
        is_last: whether the sub-layer is the last of its layer.
    """

    def __init__(self, norm: nn.Module, dropout: float, *, is_last: bool) -> None:
        super().__init__()
        self.norm = norm
        self.dropout = Dropout(dropout)
        self.is_last = is_last


class PreNorm(Residual):
    """x + dropout(sublayer(norm(x))) (Xiong et al., 2020): trains without a delicate warm-up."""

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """(..., D) to (..., D)."""
        out: Tensor = x + self.dropout(sublayer(self.norm(x)))
        return out


class PostNorm(Residual):
    """norm(x + dropout(sublayer(x))): the order of the original paper."""

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """(..., D) to (..., D)."""
        out: Tensor = self.norm(x + self.dropout(sublayer(x)))
        return out
