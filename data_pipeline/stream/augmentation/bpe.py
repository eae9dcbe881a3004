"""BPE-dropout (Provilkov et al., 2020) of many words at once."""

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from data_pipeline.order.randomness import mixed, threshold
from data_pipeline.stream.augmentation.variants import Segmenter
from data_pipeline.stream.augmentation.vocabulary import Vocabulary
from data_pipeline.stream.batch import Ragged

Integers = NDArray[np.int64]

NONE = np.iinfo(np.int32).max
_STEP, _PLACE = np.uint64(0xD1B54A32D192ED03), np.uint64(0x8CB92BA72F3D8DD7)


class BpeSegmenter(Segmenter):
    """Algorithm 1 of the paper, each step for all words: of a word's possible merges each is dropped with probability
    p, and the best of the others is made; where none is left the word is done. Of the same merge at several places the
    first is made, as SentencePiece does. W words of L characters."""

    def __init__(self, vocabulary: Vocabulary, dropout: float) -> None:
        self._drop = threshold(dropout)
        self._base = len(vocabulary.pieces) + 0x110000
        ids = vocabulary.ids
        # SentencePiece's scores are 32-bit numbers, equal ones among them where a model was not trained as BPE.
        rank = {piece: n for n, piece in enumerate(sorted(ids, key=lambda p: -vocabulary.scores[ids[p]]))}
        merges: dict[int, tuple[int, int]] = {}
        for piece, number in ids.items():
            for cut in range(1, len(piece)):
                left, right = ids.get(piece[:cut]), self._id(piece[cut:], vocabulary)
                left = self._id(piece[:cut], vocabulary) if left is None else left
                if left is not None and right is not None:
                    merges[left * self._base + right] = (rank[piece], number)
        keys = sorted(merges)
        self._keys: Integers = np.array(keys or [-1], dtype=np.int64)
        self._ranks = np.array([merges[key][0] for key in keys] or [NONE], dtype=np.int32)
        self._merged: Integers = np.array([merges[key][1] for key in keys] or [0], dtype=np.int64)

    @staticmethod
    def _id(piece: str, vocabulary: Vocabulary) -> int | None:
        """The id of a piece, or of a character that is none; None for anything else."""
        if len(piece) == 1:
            return vocabulary.ids.get(piece, len(vocabulary.pieces) + ord(piece))
        return vocabulary.ids.get(piece)

    @override
    def __call__(self, letters: Integers, keys: NDArray[np.uint64]) -> Ragged:
        num_words, length = letters.shape
        symbols = letters.copy()
        ranks, merged = self._look_up(symbols[:, :-1], symbols[:, 1:])
        lengths = np.full(num_words, length)
        done = np.empty_like(symbols)
        active = np.arange(num_words)
        columns = np.arange(length)
        for step in range(length):
            if len(active) == 0 or ranks.shape[1] == 0:
                break
            numbers: NDArray[np.uint64] = np.arange(1, ranks.shape[1] + 1, dtype=np.uint64)
            bits = mixed(mixed(keys[active] + np.uint64(step + 1) * _STEP)[:, None] + _PLACE * numbers)
            kept = np.where(bits >= self._drop, ranks, NONE)
            best = kept.argmin(axis=1)
            goes_on = kept[np.arange(len(active)), best] != NONE
            done[active[~goes_on], : symbols.shape[1]] = symbols[~goes_on]
            active, best = active[goes_on], best[goes_on]
            symbols, ranks, merged = symbols[goes_on], ranks[goes_on], merged[goes_on]
            lengths[active] -= 1
            symbols, ranks, merged = self._merge(symbols, ranks, merged, best, columns)
        done[active, : symbols.shape[1]] = symbols
        return Ragged(done[columns < lengths[:, None]].astype(np.uint32), np.cumsum(lengths) - lengths, lengths)

    def _merge(
        self, symbols: Integers, ranks: NDArray[np.int32], merged: Integers, best: Integers, columns: Integers
    ) -> tuple[Integers, NDArray[np.int32], Integers]:
        """Make a merge in each row, which is one column shorter then."""
        rows = np.arange(len(symbols))
        new = merged[rows, best]
        left = symbols.shape[1] - 1
        from_symbols = columns[:left] + (columns[:left] > best[:, None])
        symbols = np.take_along_axis(symbols, from_symbols, axis=1)
        symbols[rows, best] = new
        from_pairs = columns[: left - 1] + (columns[: left - 1] >= best[:, None])
        ranks = np.take_along_axis(ranks, from_pairs, axis=1)
        merged = np.take_along_axis(merged, from_pairs, axis=1)
        for has, place in ((best > 0, best - 1), (best < left - 1, best)):  # the pairs that the new symbol is in
            some, where = rows[has], place[has]
            ranks[some, where], merged[some, where] = self._look_up(symbols[some, where], symbols[some, where + 1])
        return symbols, ranks, merged

    def _look_up(self, left: Integers, right: Integers) -> tuple[NDArray[np.int32], Integers]:
        """Ranks of merges, `NONE` where there is none, and what becomes of the two."""
        wanted = left * self._base + right
        places = np.minimum(np.searchsorted(self._keys, wanted), len(self._keys) - 1)
        return np.where(self._keys[places] == wanted, self._ranks[places], NONE), self._merged[places]
