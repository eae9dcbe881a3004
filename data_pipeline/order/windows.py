"""A window's micro-batches: shuffle, bucket by both lengths, cut under a budget of tokens, put in order.

Rows of a micro-batch are padded to its longest source and its longest target, so both lengths should be similar. On a
device that packs rows without padding a budget of true tokens fills micro-batches, which are bucketed all the same.
Sorting by one side leaves the other unsorted. Here pairs are sorted by one side, divided into groups of equal tokens,
and each group is sorted by the other side, alternately up and down, so that neighbours across the edge of groups are
similar too. The best number of groups depends on the window; a few are tried, and the one with the least padding is
used.

All ranks wait for the one whose micro-batches of an update have the most tokens, and a micro-batch that is full on the
source side may have a third fewer tokens on the target side. So the order is random, but correlated between lanes: in
each update they take micro-batches of about the same rank in their windows, by weight. In a mixture each lane draws its
own order: there lanes take the dataset at different times, and differences at the end of epochs would add up.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from configs import StreamSection
from data_pipeline.order.randomness import Purpose, permutation, random_bits

Integers = NDArray[np.int64]
Sides = NDArray[np.int32]

GROUPS = (0.5, 1.0, 2.0)
"""Numbers of groups to try, as multiples of the square root of the number of micro-batches."""
OVERHEAD = 3
"""A micro-batch costs a third of its budget beyond its tokens where candidates are compared."""


class Budget(NamedTuple):
    """The limits of a micro-batch. Lengths include EOS or BOS and are rounded up."""

    source_tokens: int
    target_tokens: int
    max_rows: int
    length_multiple: int
    is_padded: bool = True
    """Whether padding counts."""

    @classmethod
    def of(cls, section: StreamSection) -> "Budget":
        """The budget of a section."""
        return cls(
            source_tokens=section.source_tokens,
            target_tokens=section.target_tokens,
            max_rows=section.max_rows,
            length_multiple=section.length_multiple,
            is_padded=section.budget == "padded",
        )

    @property
    def multiple(self) -> int:
        """What lengths are rounded up to."""
        return self.length_multiple if self.is_padded else 1

    def padded(self, lengths: NDArray[np.uint16]) -> Integers:
        """(pairs, 2): lengths of each pair as the budget counts them, from its raw pieces."""
        return -(-(lengths.astype(np.int64) + 1) // self.multiple) * self.multiple

    def usual_rows(self, lengths: NDArray[np.uint16]) -> int:
        """Rows of a micro-batch without padding whose pairs all have the mean lengths."""
        sums = self.padded(lengths).sum(axis=0)
        source, target = self.source_tokens * len(lengths) // sums[0], self.target_tokens * len(lengths) // sums[1]
        return max(1, min(int(source), int(target), self.max_rows))

    def holds(self, lengths: NDArray[np.uint16]) -> NDArray[np.bool_]:
        """(pairs,): whether any micro-batch can hold the pair."""
        # Compares raw pieces, to avoid a wider copy of the whole table.
        most = [b // self.multiple * self.multiple - 1 for b in (self.source_tokens, self.target_tokens)]
        return (lengths[:, 0].astype(np.int32) <= most[0]) & (lengths[:, 1].astype(np.int32) <= most[1])


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """The micro-batches of a window, in training order."""

    rows: Integers
    """Rows of the window's pairs, micro-batches one after the other."""
    bounds: Integers
    """(micro-batches, 2): micro-batch m has rows[bounds[m, 0] : bounds[m, 1]]."""

    def __len__(self) -> int:
        return len(self.bounds)

    def micro_batch(self, number: int) -> Integers:
        """The rows of a micro-batch."""
        first, last = self.bounds[number]
        return self.rows[first:last]


def plan_window(
    lengths: NDArray[np.uint16], budget: Budget, *, seed: int, place: tuple[int, int, int, int], before: int | None
) -> WindowPlan:
    """Cut a window's pairs into micro-batches. Pairs that the budget can never hold are skipped.

    Args:
        lengths: (pairs, 2): raw pieces of the window's pairs.
        budget: what a micro-batch may hold.
        seed: the run's seed.
        place: dataset, pass, lane and window.
        before: the lane's micro-batches in this pass before the window; None if the lane draws its own order.
    """
    # Stable sorts keep this random order among equal lengths, so micro-batches differ from epoch to epoch.
    shuffled = permutation(len(lengths), seed, Purpose.PAIRS, *place)
    shuffled = shuffled[budget.holds(lengths[shuffled])]
    if len(shuffled) == 0:
        return WindowPlan(shuffled, np.empty((0, 2), dtype=np.int64))
    counted = budget.padded(lengths[shuffled])
    overhead = (budget.source_tokens + budget.target_tokens) // OVERHEAD
    best_cost, order, starts, tokens = -1, shuffled, shuffled, shuffled
    for candidate in _candidates(counted, budget):
        sides = counted[candidate].astype(np.int32).T.copy()
        cuts = _padded_cuts(sides, budget) if budget.is_padded else _true_cuts(sides, budget)
        of_each = _tokens(sides, cuts, budget)
        cost = int(of_each.sum()) + overhead * len(cuts)
        if best_cost < 0 or cost < best_cost:
            best_cost, order, starts, tokens = cost, candidate, cuts, of_each
    bounds = np.stack([starts, np.append(starts[1:], len(shuffled))], axis=1)
    if before is None:
        turns = permutation(len(bounds), seed, Purpose.MICRO_BATCHES, *place)
    else:
        lightest_first = np.argsort(tokens, kind="stable")
        turns = lightest_first[_turns(len(bounds), before, seed, *place[:2])]
    return WindowPlan(shuffled[order], bounds[turns])


def _turns(count: int, before: int, seed: int, dataset: int, pass_: int) -> Integers:
    """A random order of `range(count)`; those of two lanes have about the same part of their counts at each update."""
    bits = random_bits(before + count, seed, Purpose.MICRO_BATCHES, dataset, pass_)[before:]
    return np.argsort(np.argsort(bits, kind="stable"), kind="stable")


def _candidates(counted: Integers, budget: Budget) -> Iterator[Integers]:
    """Candidate orders."""
    sums = counted.sum(axis=0)
    num_batches = max(sums[0] / budget.source_tokens, sums[1] / budget.target_tokens, len(counted) / budget.max_rows)
    keys = np.minimum(counted, np.iinfo(np.uint16).max).astype(np.uint16)  # numpy sorts 16 bits by radix sort
    numbers = sorted({max(1, round(group * float(num_batches) ** 0.5)) for group in GROUPS})
    for first in (0, 1):
        by_first = np.argsort(keys[:, first], kind="stable")
        lengths = counted[by_first, first]
        tokens = np.cumsum(lengths)
        by_length = np.cumsum(np.diff(lengths, prepend=lengths[0]) > 0)  # one group per distinct length
        for groups in (*((tokens - 1) * n // tokens[-1] for n in numbers), by_length):
            other = keys[by_first, 1 - first]
            inner = np.argsort(np.where(groups % 2 == 1, np.iinfo(np.uint16).max - other, other), kind="stable")
            yield by_first[inner[np.argsort(groups[inner].astype(np.uint16), kind="stable")]]


def _tokens(sides: Sides, starts: Integers, budget: Budget) -> Integers:
    """(micro-batches,): tokens of each that count, of both sides."""
    if budget.is_padded:
        longest = np.maximum.reduceat(sides, starts, axis=1).sum(axis=0)
        tokens: Integers = np.diff(starts, append=sides.shape[1]) * longest
    else:
        tokens = np.add.reduceat(sides.sum(axis=0), starts)
    return tokens


def _padded_cuts(sides: Sides, budget: Budget) -> Integers:
    """Fill micro-batches greedily up to a budget of padded tokens; returns their first rows.

    Args:
        sides: (2, pairs): lengths, in the order of the pairs.
        budget: what a micro-batch may hold.
    """
    most = np.minimum(budget.source_tokens // sides[0], budget.target_tokens // sides[1])
    allowed = np.minimum(most, budget.max_rows)  # rows of a micro-batch that each pair may be in
    rows = np.arange(1, int(allowed.max()) + 1, dtype=np.int32)
    starts, start, count = [], 0, len(allowed)
    while start < count:
        starts.append(start)
        least = np.minimum.accumulate(allowed[start : start + allowed[start]])
        # What fits is a prefix: the number of rows grows and the allowed number falls.
        start += int(np.count_nonzero(rows[: len(least)] <= least))
    return np.array(starts, dtype=np.int64)


def _true_cuts(sides: Sides, budget: Budget) -> Integers:
    """Fill micro-batches greedily up to a budget of true tokens; arguments and result as in `_padded_cuts`."""
    sources, targets = np.cumsum(sides, axis=1, dtype=np.int64)
    starts, start, source, target = [], 0, 0, 0
    while start < len(sources):
        starts.append(start)
        by_source = int(np.searchsorted(sources, source + budget.source_tokens, side="right"))
        by_target = int(np.searchsorted(targets, target + budget.target_tokens, side="right"))
        start = min(by_source, by_target, start + budget.max_rows)
        source, target = int(sources[start - 1]), int(targets[start - 1])
    return np.array(starts, dtype=np.int64)
