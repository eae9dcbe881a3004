"""Dropout (Srivastava et al., 2014), cheap on a CPU."""

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

_PATTERNS = 1 << 16
_LIBRARY = torch.library.Library("zeromt", "FRAGMENT")  # type: ignore[no-untyped-call]
_LIBRARY.define("random_words(Tensor seed, SymInt count) -> Tensor")  # type: ignore[no-untyped-call]


class Dropout(nn.Module):
    """Zeroes elements with probability `p` and scales the rest so that the expectation stays.

    On a CPU torch draws one random number per element, and what makes masks of bytes takes one element at a time. There
    the noise is 16 random bits an element, taken as bf16 numbers: an element is zeroed where its number is not above a
    threshold, in one vectorised pass. So `p` is rounded to what a threshold can be, by 2^-17, or 2^-9 next to 0.5; the
    scale belongs to the rounded value, in the precision of `x`. The seed of the noise is drawn from torch's generator.
    Elsewhere it is torch's own.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p
        self.threshold, self.share = rounded(p)
        self.scale = 1 / (1 - self.share)
        """Of what is kept, on a CPU."""

    def forward(self, x: Tensor) -> Tensor:
        """Drop elements of `x` (any shape) while training."""
        if not self.training or self.p == 0:
            return x
        if x.device.type != "cpu" or x.dtype not in (torch.float32, torch.bfloat16):
            return F.dropout(x, self.p)
        # Zero where the noise is not above the threshold, and x elsewhere; its gradient is the same of the gradient.
        kept: Tensor = torch.ops.aten.threshold_backward(x, self.noise(x), self.threshold)
        return kept.mul_(self.scale)

    def noise(self, x: Tensor) -> Tensor:
        """New noise in the shape and precision of `x`, which is on a CPU: what is not above `threshold` drops it."""
        seed = torch.empty((), dtype=torch.int64).random_()
        words: Tensor = torch.ops.zeromt.random_words(seed, x.numel() // 4 + 1)
        return words.view(torch.bfloat16)[: x.numel()].view(x.shape).to(x.dtype)

    def extra_repr(self) -> str:
        """Shown by print(model)."""
        return f"p={self.p}"


@lru_cache
def rounded(p: float) -> tuple[float, float]:
    """A threshold, and the share of all bf16 bit patterns that are not above it, which is about `p` but not 0 or 1.

    No pattern of NaN is above or below anything, so those are kept. Thresholds are no numbers that some processors
    take for 0, lest the share be theirs.
    """
    numbers = torch.arange(_PATTERNS, device="cpu").to(torch.int16).view(torch.bfloat16).float()
    numbers = numbers[~numbers.isnan()].sort().values
    thresholds = numbers[numbers.abs() >= torch.finfo(torch.bfloat16).tiny]
    shares = torch.searchsorted(numbers, thresholds, right=True).double() / _PATTERNS
    nearest = int((shares - p).abs().argmin())
    return float(thresholds[nearest]), float(shares[nearest])


@torch.library.impl(_LIBRARY, "random_words", "CPU")
def _random_words(seed: Tensor, count: int) -> Tensor:
    """(count,) int64 of random bits by SFC64, 3 to 5 times as fast as torch's own generator."""
    return torch.from_numpy(np.random.SFC64(int(seed)).random_raw(count).view(np.int64))


@torch.library.register_fake("zeromt::random_words", lib=_LIBRARY)  # type: ignore[untyped-decorator]
def _(seed: Tensor, count: int) -> Tensor:
    return seed.new_empty(count)
