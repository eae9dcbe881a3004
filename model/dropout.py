"""Dropout (Srivastava et al., 2014)."""

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

    def extra_repr(self) -> str:
        """Shown by print(model)."""
        return f"p={self.p}"
