"""A window's micro-batches: shuffle, bucket by both lengths, cut under a budget of padded tokens, shuffle.

Rows of a micro-batch are padded to its longest source and its longest target, so both sides' lengths must be
close. Sorting by one side leaves the other loose. Here pairs are sorted by one side, cut into groups of equal
tokens, and each group is sorted by the other side, up and down in turns so that neighbours across a group's
edge are close too. How many groups are best depends on the window; a few numbers are tried and the one with
the least padding is taken.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from configs import StreamSection
from data_pipeline.order.randomness import Purpose, permutation

Integers = NDArray[np.int64]
Sides = NDArray[np.int32]

GROUPS = (0.5, 1.0, 2.0)
"""Numbers of groups to try, as shares of the square root of the number of micro-batches. More were tried: no gain."""


MOST_TO_REFINE = 512
"""Windows of more micro-batches have little padding left to win."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What a micro-batch may hold. Lengths include one mark and are rounded up."""

    source_tokens: int
    target_tokens: int
    max_rows: int
    length_multiple: int

    @classmethod
    def of(cls, section: StreamSection) -> "Budget":
        """The budget that a section sets."""
        return cls(
            source_tokens=section.source_tokens,
            target_tokens=section.target_tokens,
            max_rows=section.max_rows,
            length_multiple=section.length_multiple,
        )

    def padded(self, lengths: NDArray[np.uint16]) -> Integers:
        """(pairs, 2): what each pair takes in a row, given its raw pieces."""
        return -(-(lengths.astype(np.int64) + 1) // self.length_multiple) * self.length_multiple

    def rows(self, padded: Integers) -> NDArray[np.int32]:
        """(pairs,): most rows of a micro-batch that each pair may stand in; a micro-batch has that of its least."""
        most = np.minimum(self.source_tokens // padded[:, 0], self.target_tokens // padded[:, 1])
        return np.minimum(most, min(self.max_rows, len(padded))).astype(np.int32)

    def holds(self, lengths: NDArray[np.uint16]) -> NDArray[np.bool_]:
        """(pairs,): whether a micro-batch can hold the pair at all."""
        # Compared as raw pieces: no wide copy of the whole table is made.
        most = [b // self.length_multiple * self.length_multiple - 1 for b in (self.source_tokens, self.target_tokens)]
        return (lengths[:, 0].astype(np.int32) <= most[0]) & (lengths[:, 1].astype(np.int32) <= most[1])


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """The micro-batches of a window, in the order in which they are trained on."""

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


def plan_window(lengths: NDArray[np.uint16], budget: Budget, *, seed: int, place: tuple[int, ...]) -> WindowPlan:
    """Cut a window's pairs into micro-batches. Pairs that the budget can never hold are left out.

    Args:
        lengths: (pairs, 2): raw pieces of the window's pairs.
        budget: what a micro-batch may hold.
        seed: the run's seed.
        place: dataset, pass, lane and window.
    """
    # Equal lengths keep this random order through every stable sort, so batches differ from epoch to epoch.
    shuffled = permutation(len(lengths), seed, Purpose.PAIRS, *place)
    shuffled = shuffled[budget.holds(lengths[shuffled])]
    if len(shuffled) == 0:
        return WindowPlan(shuffled, np.empty((0, 2), dtype=np.int64))
    padded = budget.padded(lengths[shuffled])
    allowed = budget.rows(padded)
    source, target = padded.astype(np.int32).T.copy()
    least, best_order, best_starts = -1, shuffled, shuffled
    for order in _candidates(padded, budget):
        starts = _cut(allowed[order])
        longest = np.maximum.reduceat(source[order], starts) + np.maximum.reduceat(target[order], starts)
        cost = int((np.diff(starts, append=len(order)) * longest).sum())
        if least < 0 or cost < least:
            least, best_order, best_starts = cost, order, starts
    if len(best_starts) <= MOST_TO_REFINE:
        overhead = (budget.source_tokens + budget.target_tokens) // 4
        best_starts = _refine(
            source[best_order], target[best_order], allowed[best_order], len(best_starts), overhead=overhead
        )
    bounds = np.stack([best_starts, np.append(best_starts[1:], len(shuffled))], axis=1)
    turns = permutation(len(bounds), seed, Purpose.MICRO_BATCHES, *place)
    return WindowPlan(shuffled[best_order], bounds[turns])


def _candidates(padded: Integers, budget: Budget) -> Iterator[Integers]:
    """Orders to choose from."""
    sums = padded.sum(axis=0)
    num_batches = max(sums[0] / budget.source_tokens, sums[1] / budget.target_tokens, len(padded) / budget.max_rows)
    keys = np.minimum(padded, np.iinfo(np.uint16).max).astype(np.uint16)  # 16 bits: numpy sorts them by radix
    numbers = sorted({max(1, round(share * float(num_batches) ** 0.5)) for share in GROUPS})
    for first in (0, 1):
        by_first = np.argsort(keys[:, first], kind="stable")
        lengths = padded[by_first, first]
        tokens = np.cumsum(lengths)
        by_length = np.cumsum(np.diff(lengths, prepend=lengths[0]) > 0)  # a group for each length there is
        for groups in (*((tokens - 1) * n // tokens[-1] for n in numbers), by_length):
            other = keys[by_first, 1 - first]
            turned = np.where(groups % 2 == 1, np.iinfo(np.uint16).max - other, other)
            inner = np.argsort(turned, kind="stable")
            yield by_first[inner[np.argsort(groups[inner].astype(np.uint16), kind="stable")]]


def _cut(allowed: NDArray[np.int32]) -> Integers:
    """Fill micro-batches in order, each as far as it goes: their first rows.

    Args:
        allowed: (pairs,): `Budget.rows`, in the order of the pairs.
    """
    rows = np.arange(1, int(allowed.max()) + 1, dtype=np.int32)
    starts, start, count = [], 0, len(allowed)
    while start < count:
        starts.append(start)
        least = np.minimum.accumulate(allowed[start : start + allowed[start]])
        # What fits is a prefix: the rows grow and what is allowed falls.
        start += int(np.count_nonzero(rows[: len(least)] <= least))
    return np.array(starts, dtype=np.int64)


def _refine(source: Sides, target: Sides, allowed: Sides, num_batches: int, *, overhead: int) -> Integers:
    """The cuts with the fewest padded tokens, where a micro-batch counts for `overhead` tokens more.

    Filling each as far as it goes puts a few longer pairs at the end of many; to stop before them costs a few more
    micro-batches and saves much padding. Dynamic programming over the places where lengths change, and others so
    that there are some 32 a micro-batch.

    Args:
        source: (pairs,): padded lengths, in the order of the pairs.
        target: (pairs,).
        allowed: (pairs,): `Budget.rows`.
        num_batches: how many there are about.
        overhead: tokens.

    Returns:
        The micro-batches' first rows.
    """
    count = len(source)
    is_place = np.zeros(count + 1, dtype=bool)
    is_place[:: max(1, count // (32 * num_batches))] = True
    is_place[1:count] |= (source[1:] != source[:-1]) | (target[1:] != target[:-1])
    is_place[count] = True
    rows = np.arange(1, int(allowed.max()) + 1)
    costs = np.full(count + 1, np.iinfo(np.int64).max)
    costs[0] = 0
    before = np.zeros(count + 1, dtype=np.int64)
    for start in np.flatnonzero(is_place[:-1]).tolist():
        window = slice(start, start + int(allowed[start]))
        least = np.minimum.accumulate(allowed[window])
        fitting = np.flatnonzero((rows[: len(least)] <= least) & is_place[start + 1 : start + 1 + len(least)])
        if costs[start] == np.iinfo(np.int64).max or len(fitting) == 0:
            continue
        longest = np.maximum.accumulate(source[window]) + np.maximum.accumulate(target[window])
        found = costs[start] + rows[fitting] * longest[fitting] + overhead
        ends = start + 1 + fitting
        is_better = found < costs[ends]
        costs[ends[is_better]] = found[is_better]
        before[ends[is_better]] = start
    starts = [count]
    while starts[-1]:
        starts.append(int(before[starts[-1]]))
    return np.array(starts[:0:-1], dtype=np.int64)
