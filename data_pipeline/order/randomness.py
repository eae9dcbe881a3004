"""Random orders as pure functions of integers.

Every random choice of the stream takes its bits from Philox (Salmon et al., 2011) under a key that
`SeedSequence` mixes from (seed, purpose, dataset, pass, lane, window, ...). Only these two, whose output
numpy guarantees never to change, and sorting are used; the methods of `numpy.random.Generator` may change
from one version to the next. What is drawn for every pair or piece by itself is a hash (`mixed`) of such bits.
"""

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray


class Purpose(IntEnum):
    """The purpose of random bits; different purposes get different bits."""

    DEAL_UNITS = 1
    DEAL_LANES = 2
    LANE_ORDER = 3
    PAIRS = 4
    MICRO_BATCHES = 5
    TOKENIZER_SAMPLE = 6
    SHUFFLE = 7
    AUGMENT = 8
    PHASE = 9


def random_bits(count: int, seed: int, purpose: Purpose, *place: int) -> NDArray[np.uint64]:
    """`count` random 64-bit integers, determined by a place in the stream."""
    return np.random.Philox(np.random.SeedSequence([seed, int(purpose), *place])).random_raw(count)


def permutation(count: int, seed: int, purpose: Purpose, *place: int) -> NDArray[np.int64]:
    """A random order of `range(count)`, determined by a place in the stream."""
    return np.argsort(random_bits(count, seed, purpose, *place), kind="stable")


GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""SplitMix64's step: 2 ** 64 over the golden ratio."""


def mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A hash of each number: the finaliser of SplitMix64 (Steele et al., 2014).

    It replaces Philox, which takes microseconds to start, where every pair or piece has its own bits.
    """
    x = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def threshold(probability: float) -> np.uint64:
    """A threshold that random bits are below with this probability; for 1, up to an error of 2 ** -53."""
    return np.uint64(min(int(probability * 2**64), 2**64 - 2**11))
