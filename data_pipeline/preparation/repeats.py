"""Training pairs that nearly repeat a held-out pair, which makes figures on that set better than they are.

Every preparation looks for them, so it must cost next to nothing. Only the sources are searched: each is signed by the
least hashes of the eight bytes from where each word begins (MinHash), and pairs that share a band with a held-out
source are compared, shingle by shingle and on both sides. This misses one in twenty of those at the threshold.
"""

import itertools
import unicodedata
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from data_pipeline.preparation.shingles import Hashes, mix, shingles

SIMILARITY = 0.8
"""Of either side, at least: `cleaning.min_similarity` by default."""
BANDS, ROWS = 6, 3
MULTIPLIERS = mix(np.arange(1, BANDS * ROWS + 1, dtype=np.uint64)) | np.uint64(1)
"""One for each hash of a beginning."""
BYTES = 8
"""Of a beginning."""
FIRST_WIDE = 0xE3
"""UTF-8 from U+3000 on begins with this byte or a later one: there each character counts as a word."""
SUSPECTS = 256
"""Pairs that are compared with held-out pairs at a time."""
KNOWN_BITS = 20
MOST_COMPARED = 8
"""Held-out pairs with one of a source's bands that it is compared with."""


class HeldOutRepeats:
    """The held-out pairs with which training pairs are compared.

    Args:
        held_out: sources and targets.
    """

    def __init__(self, held_out: Sequence[tuple[str, str]]) -> None:
        self._held_out = held_out
        self._having: dict[int, list[int]] = {}
        """Held-out pairs by the bands of their sources."""
        for row, bands in enumerate(_bands([source for source, _ in held_out]).tolist()):
            for band in bands:
                others = self._having.setdefault(band, [])
                if len(others) < MOST_COMPARED:
                    others.append(row)
        self._is_known = np.zeros(1 << KNOWN_BITS, dtype=bool)
        """Whether a held-out source has a band with these low bits."""
        self._is_known[_low_bits(np.array([*self._having], dtype=np.uint64))] = True

    def find(self, sources: list[str], targets: list[str]) -> list[int]:
        """Rows of the pairs that repeat a held-out pair, or nearly do."""
        if not self._having:
            return []
        bands = _bands(sources)
        suspects: list[int] = np.flatnonzero(self._is_known[_low_bits(bands)].any(axis=1)).tolist()
        parts = [suspects[begin : begin + SUSPECTS] for begin in range(0, len(suspects), SUSPECTS)]
        return [row for left in parts for row in self._near(left, bands, sources, targets)]

    def _near(self, left: list[int], bands: Hashes, sources: list[str], targets: list[str]) -> list[int]:
        """Those of some rows of which both sides are near those of a held-out pair with one of their bands."""
        others = {row: {other for band in bands[row].tolist() for other in self._having.get(band, ())} for row in left}
        for row in left:
            sizes = len(sources[row]), len(targets[row])
            others[row] = {o for o in others[row] if all(map(_may_be_near, sizes, map(len, self._held_out[o])))}
        left = [row for row in left if others[row]]
        for number, side in enumerate((sources, targets)):
            theirs = sorted(set().union(*others.values()))
            known = dict(zip(theirs, _sets([self._held_out[other][number] for other in theirs]), strict=True))
            own = dict(zip(left, _sets([side[row] for row in left]), strict=True))
            others = {row: {o for o in others[row] if _similarity(own[row], known[o]) >= SIMILARITY} for row in left}
            left = [row for row in left if others[row]]
        return left


def _low_bits(bands: Hashes) -> Hashes:
    return bands & np.uint64((1 << KNOWN_BITS) - 1)


def _may_be_near(size: int, other: int) -> bool:
    """By the numbers of characters, with some room for white space."""
    return 0.7 * size <= other and 0.7 * other <= size


def _similarity(one: frozenset[int], other: frozenset[int]) -> float:
    common = len(one & other)
    return common / max(1, len(one) + len(other) - common)


def _sets(lines: Sequence[str]) -> list[frozenset[int]]:
    hashes, begins = shingles(lines)
    every = hashes.tolist()
    return [frozenset(every[begin:end]) for begin, end in itertools.pairwise(begins.tolist())]


def _bands(lines: Sequence[str]) -> Hashes:
    """(lines, BANDS): a hash of each line's bands."""
    if not lines:
        return np.empty((0, BANDS), dtype=np.uint64)
    text = "\n".join([*(line.replace("\n", " ") for line in lines), ""])
    text = text.lower() if text.isascii() else unicodedata.normalize("NFKC", text).casefold()
    while "  " in text:
        text = text.replace("  ", " ")
    end = " " * (BYTES - 1) + "\n"  # so that no beginning reaches the next line
    content = (text.replace("\n", end) + " " * BYTES).encode()
    codes = np.frombuffer(content, dtype=np.uint8)[:-BYTES]
    begins = np.concatenate([[0], np.flatnonzero(codes == ord("\n"))[:-1] + 1])
    is_beginning = codes >= FIRST_WIDE
    is_beginning[1:] |= (codes[:-1] == ord(" ")) & (codes[1:] > ord(" "))
    is_beginning[begins] = True
    at = np.flatnonzero(is_beginning)
    beginnings: NDArray[np.uint64] = np.ndarray(len(codes), dtype="<u8", buffer=content, strides=(1,))[at]
    first = np.searchsorted(at, begins)
    bands = np.zeros((len(lines), BANDS), dtype=np.uint64)
    for number, multiplier in enumerate(MULTIPLIERS):
        hashes = beginnings * multiplier
        bands[:, number // ROWS] ^= np.minimum.reduceat(hashes ^ (hashes >> np.uint64(32)), first)
        bands[:, number // ROWS] *= MULTIPLIERS[0]
    return bands
