"""Chooses the dataset of a lane's next micro-batch in a mixture, as a function of integers.

With one dataset an epoch is a pass over it. With several, an epoch is the number of updates that hold about as many
pairs as all datasets together. Each dataset has its own passes, which use each of its pairs once and do not end with
the epoch.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from data_pipeline.order.randomness import GOLDEN
from data_pipeline.order.state import LaneCursor

SCALE = 1 << 32
"""Denominator of proportions, which are integers so that sums do not depend on the machine."""
PARTS = 1 << 16
"""Fractions of a pair by which lanes begin apart, so that they do even where a micro-batch is a pair or two."""


class Mixture(NamedTuple):
    """Sizes and proportions of the datasets. Each lane follows them without knowing the other lanes' choices."""

    sizes: tuple[int, ...]
    """Pairs of each dataset."""
    proportions: tuple[int, ...]
    """Each dataset's proportion of the pairs, as a numerator of their sum."""
    num_lanes: int
    """K."""

    @classmethod
    def of(
        cls, sizes: Sequence[int], weights: Sequence[float | None], *, temperature: float, num_lanes: int
    ) -> "Mixture":
        """Make proportions from weights, or without weights from size ** (1 / temperature).

        The temperature is that of Arivazhagan et al. (2019).

        Args:
            sizes: pairs of each dataset.
            weights: one for each, or None for each.
            temperature: at 1 all pairs are equally frequent, at a large value all datasets.
            num_lanes: K.
        """
        target = [n ** (1 / temperature) if w is None else w for n, w in zip(sizes, weights, strict=True)]
        proportions = tuple(max(1, round(w / sum(target) * SCALE)) for w in target)
        return cls(sizes=tuple(sizes), proportions=proportions, num_lanes=num_lanes)

    @property
    def is_single(self) -> bool:
        """Whether there is only one dataset, so that an epoch is a pass over it."""
        return len(self.sizes) == 1

    def part(self, count: int, dataset: int) -> int:
        """A dataset's part of a count, rounded down."""
        return count * self.proportions[dataset] // sum(self.proportions)

    @property
    def lane_pairs(self) -> int:
        """Pairs of an epoch for each lane, rounded up."""
        return -(-sum(self.sizes) // self.num_lanes)

    def epoch_updates(self, epoch: int, usual_pairs: Sequence[Fraction]) -> int:
        """Updates of an epoch, at least one: as many as hold about as many pairs as all datasets together.

        Args:
            epoch: its number; if the mean is not a whole number, some epochs have one update more.
            usual_pairs: mean pairs of a micro-batch of each dataset.
        """
        micro_batches = sum(proportion / pairs for proportion, pairs in zip(self.proportions, usual_pairs, strict=True))
        updates = Fraction(sum(self.sizes), self.num_lanes) * micro_batches / sum(self.proportions)
        before, after = (max(count, int(count * updates + Fraction(1, 2))) for count in (epoch, epoch + 1))
        return after - before

    def choose(self, taken: Sequence[int], coming: Sequence[int]) -> int:
        """The dataset whose next micro-batch brings a lane nearest to the proportions; of equal ones the first.

        Nearest means the smallest sum over datasets of (proportion * all pairs - pairs of the dataset)^2, counting the
        new micro-batch, since small proportions would be biased otherwise.

        Args:
            taken: parts of pairs that the lane has handed out of each dataset, and `ahead`.
            coming: parts of pairs of each dataset's next micro-batch; of a usual one where it is the lane's first, or
                lanes would begin with small ones.
        """
        whole, total = sum(self.proportions), sum(taken)
        behind = [proportion * total - whole * count for proportion, count in zip(self.proportions, taken, strict=True)]
        common = sum(proportion * b for proportion, b in zip(self.proportions, behind, strict=True))
        squares = sum(proportion * proportion for proportion in self.proportions)

        def growth(dataset: int) -> int:
            size, proportion = coming[dataset], self.proportions[dataset]
            return size * (
                2 * (common - whole * behind[dataset]) + size * (squares - 2 * proportion * whole + whole * whole)
            )

        return min(range(len(self.proportions)), key=growth)

    def ahead(self, dataset: int, lane: int, usual_pairs: Fraction) -> int:
        """How many parts of pairs a lane's count of a dataset starts ahead of its proportion; behind it: below 0.

        The lanes' counts start up to half a micro-batch off the proportion, evenly spread, so that lanes take the
        dataset's micro-batches in different updates, not all at once. Lanes that are early for one dataset are late
        for the next one; from pair to pair of datasets, other lanes are early.

        Args:
            dataset: its number.
            lane: which.
            usual_pairs: mean pairs of a micro-batch of the dataset.
        """
        turn = (lane + (dataset // 2 * int(GOLDEN) % 2**64 * self.num_lanes >> 64)) % self.num_lanes
        if dataset % 2:
            turn = self.num_lanes - 1 - turn
        return int(PARTS * usual_pairs * (2 * turn + 1 - self.num_lanes) / (2 * self.num_lanes))

    def next_epoch(self, cursors: tuple[LaneCursor, ...]) -> tuple[LaneCursor, ...]:
        """Where a lane that is dry continues: in a new pass over the one dataset, else where its passes are."""
        return (LaneCursor(cursors[0].pass_ + 1, 0, 0),) if self.is_single else cursors
