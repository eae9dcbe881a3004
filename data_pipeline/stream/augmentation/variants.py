"""Segmentations of words: each has some variants, and each occurrence draws one of them.

A variant is a function of (seed, word, number of the variant). So it need be made once, however often the word is
read, in whichever process, and however often it is forgotten in between.
"""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from data_pipeline.order.randomness import GOLDEN, mixed
from data_pipeline.stream.augmentation.vocabulary import Vocabulary, gather
from data_pipeline.stream.batch import Ragged

Bits = NDArray[np.uint64]

VARIANTS = 64
"""Segmentations cached per word; more cost more to build."""
MAX_KEPT = 1 << 20
"""Variants that are remembered, some 60 MB."""
LETTERS_AT_ONCE = 1 << 17
"""Letters of the words that are cut at once."""
MAX_LETTERS = 512
"""Maximum letters of a word; a longer one stays plain, as time and memory grow with the square."""


class Segmenter(Protocol):
    """What cuts words."""

    def __call__(self, letters: NDArray[np.int64], keys: Bits) -> Ragged:
        """Draw a segmentation of words of one length.

        Args:
            letters: (words, L): ids of their characters, as in `Vocabulary.letters`.
            keys: (words,): what each one's randomness is a function of.

        Returns:
            The pieces of each.
        """


class Variants:
    """The variants of one vocabulary's words under one modifier. Not for several threads at a time."""

    def __init__(self, vocabulary: Vocabulary, segmenter: Segmenter, key: np.uint64) -> None:
        """See the class.

        Args:
            vocabulary: whose pieces.
            segmenter: makes them.
            key: the run's.
        """
        self._vocabulary = vocabulary
        self._segmenter = segmenter
        self._key = key
        self._keys: Bits = np.empty(0, dtype=np.uint64)
        """In ascending order."""
        self._rows: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        """(keys,): of what is kept."""
        self._kept = Ragged.of([])

    def recut(self, rows: Ragged, keys: Bits) -> Ragged:
        """Rows with their words cut anew.

        Args:
            rows: of pieces, one after the other in one array.
            keys: (rows,): what the variants that are drawn are a function of.
        """
        pieces = rows.pieces
        if len(pieces) == 0:
            return rows
        starts = np.flatnonzero(self._begins(rows))
        lengths = np.diff(starts, append=len(pieces))
        row = np.searchsorted(rows.starts + rows.lengths, starts, side="right")
        ordinal = np.arange(len(starts)) - np.searchsorted(starts, rows.starts)[row]
        words = Ragged(pieces, starts, lengths)
        drawn = mixed(keys[row] + (ordinal + 1).astype(np.uint64) * GOLDEN) % np.uint64(VARIANTS)
        content = self._hashes(words)
        kept_rows = self._find(words, mixed(content + (drawn + np.uint64(1)) * GOLDEN))
        cut = gather(self._kept, kept_rows)
        counts = np.bincount(row, weights=cut.lengths, minlength=len(rows)).astype(np.int64)
        return Ragged(cut.pieces, np.cumsum(counts) - counts, counts)

    def _begins(self, rows: Ragged) -> NDArray[np.bool_]:
        """(pieces,): whether a word begins there; what is no normal piece is a word of its own."""
        pieces, vocabulary = rows.pieces, self._vocabulary
        is_other = ~vocabulary.is_normal[pieces]
        begins = is_other | vocabulary.begins_word[pieces]
        begins[1:] |= is_other[:-1]
        begins[rows.starts[rows.lengths > 0]] = True
        return begins

    def _hashes(self, words: Ragged) -> Bits:
        """(words,): of their pieces."""
        place = np.arange(len(words.pieces)) - np.repeat(words.starts, words.lengths)
        each = mixed(words.pieces.astype(np.uint64) + (place + 1).astype(np.uint64) * GOLDEN)
        sums: Bits = np.add.reduceat(each, words.starts)
        return mixed(sums + self._key)

    def _find(self, words: Ragged, keys: Bits) -> NDArray[np.int64]:
        """(words,): rows of what is kept, the missing ones made."""
        needed, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
        is_missing = np.ones(len(needed), dtype=bool)
        if len(self._keys):
            places = np.minimum(np.searchsorted(self._keys, needed), len(self._keys) - 1)
            is_missing = self._keys[places] != needed
        if len(self._keys) + int(is_missing.sum()) > MAX_KEPT:
            self._keys, self._rows, self._kept = self._keys[:0], self._rows[:0], Ragged.of([])
            is_missing[:] = True
        if is_missing.any():
            self._add(needed[is_missing], self._make(gather(words, first[is_missing]), needed[is_missing]))
        kept_rows: NDArray[np.int64] = self._rows[np.searchsorted(self._keys, needed)][inverse]
        return kept_rows

    def _make(self, words: Ragged, keys: Bits) -> Ragged:
        """Cut words, those of one length at a time."""
        parts: list[Ragged] = []
        orders: list[NDArray[np.int64]] = []
        is_normal = self._vocabulary.is_normal[words.pieces[words.starts]]
        letters = gather(self._vocabulary.letters, words.pieces.astype(np.int64))
        ends = np.append(0, np.cumsum(letters.lengths))
        firsts, lasts = ends[words.starts], ends[words.starts + words.lengths]
        counts = lasts - firsts
        is_normal &= counts <= MAX_LETTERS
        others = np.flatnonzero(~is_normal)
        if len(others):
            parts, orders = [gather(words, others)], [others]
        for length in np.unique(counts[is_normal]).tolist():
            numbers = np.flatnonzero(is_normal & (counts == length))
            step = max(1, LETTERS_AT_ONCE // length)
            for some in np.split(numbers, range(step, len(numbers), step)):
                places = firsts[some][:, None] + np.arange(length)
                parts.append(self._segmenter(letters.pieces[places].astype(np.int64), keys[some]))
                orders.append(some)
        joined = _joined(parts)
        back = np.argsort(np.concatenate(orders), kind="stable")
        return self._spelled(words, Ragged(joined.pieces, joined.starts[back], joined.lengths[back]))

    def _spelled(self, words: Ragged, made: Ragged) -> Ragged:
        """What was made; plain where a character is left that is no piece, as some models' are not."""
        size = len(self._vocabulary.pieces)
        if not len(made.pieces) or int(made.pieces.max()) < size:
            return made
        row = np.repeat(np.arange(len(made)), made.lengths)
        is_bad = np.zeros(len(made), dtype=bool)
        is_bad[row[gather(made, np.arange(len(made))).pieces >= size]] = True
        both = _joined([made, words])
        chosen = np.where(is_bad, np.arange(len(made)) + len(made), np.arange(len(made)))
        return Ragged(both.pieces, both.starts[chosen], both.lengths[chosen])

    def _add(self, keys: Bits, made: Ragged) -> None:
        first_row = len(self._kept)
        self._kept = _joined([self._kept, made])
        all_keys = np.concatenate([self._keys, keys])
        order = np.argsort(all_keys, kind="stable")
        self._keys = all_keys[order]
        self._rows = np.concatenate([self._rows, first_row + np.arange(len(keys))])[order]


def _joined(parts: list[Ragged]) -> Ragged:
    """All rows, the arrays one after the other."""
    offsets = np.cumsum([0, *(len(part.pieces) for part in parts[:-1])])
    return Ragged(
        np.concatenate([part.pieces.astype(np.uint32, copy=False) for part in parts]),
        np.concatenate([part.starts + offset for part, offset in zip(parts, offsets, strict=True)]),
        np.concatenate([part.lengths for part in parts]),
    )
