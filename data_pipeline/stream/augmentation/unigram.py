"""Unigram sampling (Kudo, 2018) of many words at once: forward filtering, backward sampling over their lattices."""

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from data_pipeline.order.randomness import mixed
from data_pipeline.stream.augmentation.variants import Segmenter
from data_pipeline.stream.augmentation.vocabulary import Vocabulary
from data_pipeline.stream.batch import Ragged

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

_STEP = np.uint64(0xD1B54A32D192ED03)
_BASE = np.uint64(0x9E3779B97F4A7C15)


class UnigramSegmenter(Segmenter):
    """Draws a segmentation x of a word in proportion to P(x) ** alpha. W words of L characters, pieces of up to M.

    Draws are of floating-point sums: machines whose `exp` differs in the last place part ways once in some 2 ** 50.
    """

    def __init__(self, vocabulary: Vocabulary, alpha: float) -> None:
        ids = sorted(vocabulary.ids.values())
        codes = [vocabulary.letters[number].astype(np.uint64) for number in ids]
        hashes = np.array([_hash(code) for code in codes], dtype=np.uint64)
        order = np.argsort(hashes, kind="stable")
        assert len(np.unique(hashes)) == len(hashes), "two pieces have one hash"
        self._hashes: NDArray[np.uint64] = hashes[order]
        self._ids: Integers = np.array(ids, dtype=np.int64)[order]
        self._weights: Floats = alpha * vocabulary.scores[self._ids]
        self._longest = max(map(len, codes))

    @override
    def __call__(self, letters: Integers, keys: NDArray[np.uint64]) -> Ragged:
        num_words, length = letters.shape
        most = min(self._longest, length)
        ids, weights = self._arcs(letters, most)
        forward = np.full((num_words, length + 1), -np.inf)
        forward[:, 0] = 0.0
        for end in range(1, length + 1):
            reach = min(most, end)
            arriving = forward[:, end - reach : end][:, ::-1] + weights[:, end, :reach]
            forward[:, end] = np.logaddexp.reduce(arriving, axis=1)
        return self._sampled(ids, weights, forward, keys)

    def _arcs(self, letters: Integers, most: int) -> tuple[Integers, Floats]:
        """(W, L + 1, M) each: the piece that ends before a place and has m + 1 characters, and its weight."""
        num_words, length = letters.shape
        prefix = np.zeros((num_words, length + 1), dtype=np.uint64)
        for place in range(length):
            prefix[:, place + 1] = prefix[:, place] * _BASE + letters[:, place].astype(np.uint64) + np.uint64(1)
        ids = np.zeros((num_words, length + 1, most), dtype=np.int64)
        weights = np.full((num_words, length + 1, most), -np.inf)
        power = np.uint64(1)
        with np.errstate(over="ignore"):
            for size in range(1, most + 1):
                power = power * _BASE
                wanted = prefix[:, size:] - prefix[:, : length + 1 - size] * power
                places = np.minimum(np.searchsorted(self._hashes, wanted), len(self._hashes) - 1)
                ids[:, size:, size - 1] = self._ids[places]
                weights[:, size:, size - 1] = np.where(self._hashes[places] == wanted, self._weights[places], -np.inf)
        return ids, weights

    @staticmethod
    def _sampled(ids: Integers, weights: Floats, forward: Floats, keys: NDArray[np.uint64]) -> Ragged:
        """Go back from each word's end, drawing the piece that arrives there."""
        num_words, length = len(forward), forward.shape[1] - 1
        most = weights.shape[2]
        ends = np.full(num_words, length)
        taken = np.zeros((num_words, length), dtype=np.int64)
        counts = np.zeros(num_words, dtype=np.int64)
        active = np.arange(num_words)
        sizes = np.arange(1, most + 1)
        while len(active):
            end = ends[active]
            before = end[:, None] - sizes
            arriving = np.where(before >= 0, forward[active[:, None], np.maximum(before, 0)], -np.inf)
            chances = np.exp(arriving + weights[active, end] - forward[active, end][:, None])
            sums = np.cumsum(chances, axis=1)
            bits = mixed(keys[active] + (counts[active] + 1).astype(np.uint64) * _STEP)
            point = (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53 * sums[:, -1]
            choice = np.argmax(sums > point[:, None], axis=1)
            taken[active, counts[active]] = ids[active, end, choice]
            counts[active] += 1
            ends[active] -= choice + 1
            active = active[ends[active] > 0]
        columns = np.arange(length)
        places = np.maximum(counts[:, None] - 1 - columns, 0)
        pieces = np.take_along_axis(taken, places, axis=1)[columns < counts[:, None]]
        return Ragged(pieces.astype(np.uint32), np.cumsum(counts) - counts, counts)


def _hash(code: NDArray[np.uint64]) -> int:
    value = 0
    for letter in code.tolist():
        value = (value * int(_BASE) + letter + 1) & (2**64 - 1)
    return value
