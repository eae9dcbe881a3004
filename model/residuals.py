"""Residual connections: the order of sub-layer, norm, dropout and addition."""

from collections.abc import Callable

from torch import Tensor, nn

from model.dropout import Dropout


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

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """(..., D) to (..., D)."""
        raise NotImplementedError


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
