"""In which order a sub-layer, its norm, dropout and the residual stream are joined, by name."""

from collections.abc import Callable

from torch import Tensor, nn

from configs import ModelSection
from model.dropout import Dropout
from model.norms import NORMS


class Residual(nn.Module):
    """What every order has: a norm and dropout.

    Args:
        section: the model's.
        is_last: whether this sub-layer is the last of its layer.
    """

    def __init__(self, section: ModelSection, *, is_last: bool) -> None:
        super().__init__()
        self.norm = NORMS[section.norm](section.d_model, section.norm_eps)
        self.dropout = Dropout(section.dropout)
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


RESIDUALS: dict[str, type[Residual]] = {"pre": PreNorm, "post": PostNorm}
