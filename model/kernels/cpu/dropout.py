"""A cheap dropout for CPUs."""

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from model.dropout import Dropout

_PATTERNS = 1 << 16
_LIBRARY = torch.library.Library("zeromt", "FRAGMENT")  # type: ignore[no-untyped-call]
_LIBRARY.define("random_words(Tensor seed, SymInt count) -> Tensor")  # type: ignore[no-untyped-call]


class CpuDropout(Dropout):
    """Dropout with 16 random bits for each element.

    torch draws a random number for each element, and its mask operators handle one element at a time. Here 16 bits are
    read as a bf16 number, and an element is zeroed if its number is not above a threshold, in one vectorised pass. So
    `p` is rounded to the nearest possible threshold: an error of 2^-17, or 2^-9 near 0.5. The scale matches the rounded
    `p`. torch's generator gives the seed of the noise. fp16 uses torch's own dropout.
    """

    @property
    def threshold(self) -> float:
        """Elements whose noise is not above this are dropped."""
        return rounded(self.p)[0]

    @property
    def scale(self) -> float:
        """Factor for the kept elements."""
        return 1 / (1 - rounded(self.p)[1])

    @override
    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0 or x.dtype not in (torch.float32, torch.bfloat16):
            return super().forward(x)
        # zero where the noise is not above the threshold, else x; its backward pass masks the gradient in the same way
        kept: Tensor = torch.ops.aten.threshold_backward(x, self.noise(x), self.threshold)
        return kept.mul_(self.scale)

    def noise(self, x: Tensor) -> Tensor:
        """New noise in the shape and precision of `x`, to compare with `threshold`."""
        seed = torch.empty((), dtype=torch.int64).random_()
        words: Tensor = torch.ops.zeromt.random_words(seed, x.numel() // 4 + 1)
        return words.view(torch.bfloat16)[: x.numel()].view(x.shape).to(x.dtype)


@lru_cache
def rounded(p: float) -> tuple[float, float]:
    """The threshold for `p`, and the fraction of bf16 bit patterns that are not above it: about `p`, never 0 or 1.

    NaN patterns compare as false, so their elements are kept. Subnormal numbers are no thresholds, because some
    processors flush them to 0, which would change the fraction.
    """
    numbers = torch.arange(_PATTERNS, device="cpu").to(torch.int16).view(torch.bfloat16).float()
    numbers = numbers[~numbers.isnan()].sort().values
    thresholds = numbers[numbers.abs() >= torch.finfo(torch.bfloat16).tiny]
    fractions = torch.searchsorted(numbers, thresholds, right=True).double() / _PATTERNS
    nearest = int((fractions - p).abs().argmin())
    return float(thresholds[nearest]), float(fractions[nearest])


@torch.library.impl(_LIBRARY, "random_words", "CPU")
def _random_words(seed: Tensor, count: int) -> Tensor:
    """(count,) int64 of random bits from SFC64, which is 3 to 5 times as fast as torch's generator."""
    return torch.from_numpy(np.random.SFC64(int(seed)).random_raw(count).view(np.int64))


@torch.library.register_fake("zeromt::random_words", lib=_LIBRARY)  # type: ignore[untyped-decorator]
def _(seed: Tensor, count: int) -> Tensor:
    return seed.new_empty(count)
