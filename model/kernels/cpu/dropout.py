"""Dropout that is cheap on a CPU."""

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from model.dropout import Dropout

_PATTERNS = 1 << 16
_LIBRARY = torch.library.Library("zeromt", "FRAGMENT")  # type: ignore[no-untyped-call]
_LIBRARY.define("random_words(Tensor seed, SymInt count) -> Tensor")  # type: ignore[no-untyped-call]


class CpuDropout(Dropout):
    """Dropout by 16 random bits an element.

    torch draws one random number per element, and what makes masks of bytes takes one element at a time. Here the bits
    are taken as a bf16 number: an element is zeroed where its number is not above a threshold, in one vectorised pass.
    So `p` is rounded to what a threshold can be, by 2^-17, or 2^-9 next to 0.5; the scale belongs to the rounded value,
    in the precision of `x`. The seed of the noise is drawn from torch's generator. fp16 is left to torch.
    """

    @property
    def threshold(self) -> float:
        """What is not above it is dropped."""
        return rounded(self.p)[0]

    @property
    def scale(self) -> float:
        """Of what is kept."""
        return 1 / (1 - rounded(self.p)[1])

    def forward(self, x: Tensor) -> Tensor:
        """See Dropout."""
        if not self.training or self.p == 0 or x.dtype not in (torch.float32, torch.bfloat16):
            return super().forward(x)
        # Zero where the noise is not above the threshold, and x elsewhere; its gradient is the same of the gradient.
        kept: Tensor = torch.ops.aten.threshold_backward(x, self.noise(x), self.threshold)
        return kept.mul_(self.scale)

    def noise(self, x: Tensor) -> Tensor:
        """New noise in the shape and precision of `x`: what is not above `threshold` drops it."""
        seed = torch.empty((), dtype=torch.int64).random_()
        words: Tensor = torch.ops.zeromt.random_words(seed, x.numel() // 4 + 1)
        return words.view(torch.bfloat16)[: x.numel()].view(x.shape).to(x.dtype)


@lru_cache
def rounded(p: float) -> tuple[float, float]:
    """A threshold, and the fraction of all bf16 bit patterns that are not above it, which is about `p` but not 0 or 1.

    No pattern of NaN is above or below anything, so those are kept. Thresholds are no numbers that some processors
    take for 0, or the fraction would be theirs.
    """
    numbers = torch.arange(_PATTERNS, device="cpu").to(torch.int16).view(torch.bfloat16).float()
    numbers = numbers[~numbers.isnan()].sort().values
    thresholds = numbers[numbers.abs() >= torch.finfo(torch.bfloat16).tiny]
    fractions = torch.searchsorted(numbers, thresholds, right=True).double() / _PATTERNS
    nearest = int((fractions - p).abs().argmin())
    return float(thresholds[nearest]), float(fractions[nearest])


@torch.library.impl(_LIBRARY, "random_words", "CPU")
def _random_words(seed: Tensor, count: int) -> Tensor:
    """(count,) int64 of random bits by SFC64, 3 to 5 times as fast as torch's own generator."""
    return torch.from_numpy(np.random.SFC64(int(seed)).random_raw(count).view(np.int64))


@torch.library.register_fake("zeromt::random_words", lib=_LIBRARY)  # type: ignore[untyped-decorator]
def _(seed: Tensor, count: int) -> Tensor:
    return seed.new_empty(count)
