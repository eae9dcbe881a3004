"""Lines that a pair is joined with: how many of those behind it in its document, and their tokens.

How many is known by the tables of lengths and documents, before a pair is read. The lines need not be in the pair's
window, whose pairs may have been dealt one by one; they are read with it.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from configs import UserError
from configs.components import JoiningModifier
from data_pipeline.prepared.dataset import Dataset
from data_pipeline.stream.window_tokens import Tokens

Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Behind:
    """The lines behind a window's pairs that these are joined with."""

    counts: Integers
    """(pairs of the window,): with how many lines each is joined."""
    numbers: Integers
    """(lines,): numbers in the dataset, in ascending order, of all lines that were read, the window's among them."""
    tokens: Tokens
    """Of these."""

    def rows(self, pair: int, count: int) -> list[int]:
        """The rows of `tokens` of the lines behind a pair, as far as they could be read."""
        first = int(np.searchsorted(self.numbers, pair)) + 1
        is_there = self.tokens.is_there[first : first + count]
        return list(range(first, first + (count if is_there.all() else int(is_there.argmin()))))


class Joining:
    """How many lines pairs of a dataset are joined with."""

    def __init__(self, dataset: Dataset, modifier: JoiningModifier, where: str) -> None:
        """See the class.

        Args:
            dataset: whose pairs.
            modifier: joins them.
            where: its place in the configuration, for messages.

        Raises:
            UserError: the dataset knows no documents.
        """
        if dataset.index.documents is None:
            raise UserError(
                f"{where}: {dataset.location} has no documents; prepare it with prepare.train.document_field, or name "
                f"other datasets in {where.partition(':')[0]}.datasets"
            )
        self._lengths, self._documents = dataset.lengths, dataset.documents
        self._last = dataset.num_pairs - 1
        self._pieces = modifier.pieces

    def counts(self, pairs: Integers, states: NDArray[np.uint64]) -> Integers:
        """(pairs,): with how many of the next lines each is joined: any number that the pieces allow, 0 only if none.

        Args:
            pairs: (pairs,): numbers in the dataset.
            states: (pairs,): random bits of each.
        """
        behind = np.minimum(self._documents[pairs].astype(np.int64), self._last - pairs)
        sums, most = self._lengths[pairs].astype(np.int64), np.zeros(len(pairs), dtype=np.int64)
        going, step = np.flatnonzero(behind), 1
        while len(going):
            sums[going] += self._lengths[pairs[going] + step]
            going = going[(sums[going] <= self._pieces).all(axis=1)]
            most[going] = step
            step += 1
            going = going[behind[going] >= step]
        drawn = (states >> np.uint64(32)) * most.astype(np.uint64) >> np.uint64(32)
        return np.where(most > 0, drawn.astype(np.int64) + 1, 0)


def with_lines_behind(pairs: Integers, counts: Integers) -> Integers:
    """Pairs, and as many of the next ones behind each, in ascending order, each once.

    Args:
        pairs: (pairs,): in ascending order, perhaps some several times.
        counts: (pairs,).
    """
    starts = np.cumsum(counts) - counts
    steps = np.arange(int(counts.sum())) - np.repeat(starts, counts)
    return np.unique(np.concatenate([pairs, np.repeat(pairs, counts) + 1 + steps]))
