"""Shingles: what two lines have in common when they nearly repeat each other.

The similarity of two lines is that of Jaccard: shingles that both have over shingles that either has. A shingle is five
consecutive characters, spaces included, of the text without regard to case, width and white space. Characters, because
words need spaces, and because a changed ending is less than a changed word. Where one character is a syllable or a word
(Chinese, Japanese, Korean), three say as much as five letters do. Lines of a few words have few shingles, and one other
word changes most of them: so "Page 12" and "Page 13" are as far apart as any lines.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from data_pipeline.preparation.filters.held_out import fold

LETTERS, SYLLABLES = 5, 3
"""Characters of a shingle."""
FIRST_SYLLABLE = 0x2E80
"""From this code point on, characters that are written stand for syllables or words."""
_BASE = np.uint64(0x9E3779B97F4A7C15)
_SALT_OF_SYLLABLES = np.uint64(0xD1B54A32D192ED03)

Hashes = NDArray[np.uint64]


def shingles(lines: Sequence[str]) -> tuple[Hashes, NDArray[np.int64]]:
    """The shingles of some lines, as hashes; a line may have one several times.

    A line that is shorter than its first shingle is that shingle; an empty one has none.

    Returns:
        (shingles,) hashes of all lines, one line after the other; (lines + 1,) where each line begins, and the end.
    """
    folded = [fold(line) for line in lines]
    padding = "\0" * (LETTERS - 1)  # after each line, so that no window reaches the next one
    codes = np.frombuffer(padding.join([*folded, ""]).encode("utf-32-le"), dtype="<u4").astype(np.uint64)
    sizes = np.fromiter(map(len, folded), dtype=np.int64, count=len(folded))
    ends = np.cumsum(sizes + len(padding)) - len(padding)
    starts = ends - sizes
    count = max(0, len(codes) - len(padding))
    window = np.zeros(count, dtype=np.uint64)
    of_syllables = window
    for step in range(LETTERS):
        window = (window + codes[step : step + count] + np.uint64(1)) * _BASE
        if step + 1 == SYLLABLES:
            of_syllables = window ^ _SALT_OF_SYLLABLES
    is_syllable = codes[:count] >= FIRST_SYLLABLE
    reach = np.where(is_syllable, SYLLABLES, LETTERS)
    owner = np.repeat(np.arange(len(folded)), sizes + len(padding))[:count]
    is_shingle = ends[owner] - np.arange(count) >= reach
    is_shingle[starts[sizes > 0]] = True
    hashes = mix(np.where(is_syllable, of_syllables, window)[is_shingle])
    numbers = np.bincount(owner[is_shingle], minlength=len(folded))
    return hashes, np.concatenate([[0], np.cumsum(numbers, dtype=np.int64)])


def mix(values: Hashes) -> Hashes:
    """The finishing steps of SplitMix64 (Steele et al., 2014), which make every bit depend on every other."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Hashes = values ^ (values >> np.uint64(31))
    return mixed
