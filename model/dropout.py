"""Dropout (Srivastava et al., 2014), cheap on a CPU."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_LEVELS = 256


class Dropout(nn.Module):
    """Zeroes elements with probability `p` and scales the rest so that the expectation stays.

    On a CPU torch draws one random number per element, some 19 % of a small model's step. There the mask comes from raw
    random bytes, eight elements a draw, so `p` is rounded to the nearest 1/256 (0.1 becomes 0.1016); the scale belongs
    to the rounded value, in the precision of `x`. Elsewhere it is torch's own.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p
        self.threshold = round(p * _LEVELS)
        if p > 0:  # a probability that was asked for is never rounded away
            self.threshold = min(max(self.threshold, 1), _LEVELS - 1)

    def forward(self, x: Tensor) -> Tensor:
        """Drop elements of `x` (any shape) while training."""
        if not self.training or self.p == 0:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.p)
        words = torch.empty((x.numel() + 7) // 8, dtype=torch.int64).random_(-(2**63), None)
        raw = words.view(torch.uint8)[: x.numel()].view(x.shape)
        keep = (raw >= self.threshold).to(x.dtype).mul_(_LEVELS / (_LEVELS - self.threshold))
        return x * keep

    def extra_repr(self) -> str:
        """Shown by print(model)."""
        return f"p={self.p}"
