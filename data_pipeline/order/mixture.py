"""Which dataset of several a lane's next micro-batch comes from, as a function of integers.

With one dataset an epoch is a pass over it. With several, an epoch is as many updates as hold about as many pairs as
they have together, and each dataset goes through passes of its own, which do not stop where an epoch does: every pass
uses each of its pairs once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from data_pipeline.order.state import LaneCursor

SCALE = 1 << 32
"""Shares are counted in parts of it: sums of integers do not depend on the machine."""
PARTS = 1 << 16
"""Of a pair, that lanes begin apart by: where a micro-batch is of a pair or two, they do as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixture:
    """The datasets' sizes and shares. A lane keeps to the shares by itself; it knows not what other lanes take."""

    sizes: tuple[int, ...]
    """Pairs of each dataset."""
    shares: tuple[int, ...]
    """Of the pairs handed out, in parts of their sum."""
    num_lanes: int
    """K."""

    @classmethod
    def of(
        cls, sizes: Sequence[int], weights: Sequence[float | None], *, temperature: float, num_lanes: int
    ) -> "Mixture":
        """Shares proportional to the weights, or without weights to size ** (1 / temperature).

        The temperature is that of Arivazhagan et al. (2019).

        Args:
            sizes: pairs of each dataset.
            weights: one for each, or None for each.
            temperature: 1 takes all pairs equally often, a large one all datasets.
            num_lanes: K.
        """
        wanted = [n ** (1 / temperature) if w is None else w for n, w in zip(sizes, weights, strict=True)]
        shares = tuple(max(1, round(w / sum(wanted) * SCALE)) for w in wanted)
        return cls(sizes=tuple(sizes), shares=shares, num_lanes=num_lanes)

    @property
    def is_single(self) -> bool:
        """Whether there is one dataset, and an epoch a pass over it."""
        return len(self.sizes) == 1

    def part(self, count: int, dataset: int) -> int:
        """A dataset's share of a count, rounded down."""
        return count * self.shares[dataset] // sum(self.shares)

    @property
    def lane_pairs(self) -> int:
        """Pairs of an epoch for each lane, rounded up."""
        return -(-sum(self.sizes) // self.num_lanes)

    def epoch_updates(self, epoch: int, usual_pairs: Sequence[Fraction]) -> int:
        """Updates of an epoch, at least one: as many as hold about as many pairs as all datasets together.

        Args:
            epoch: which; where the number is no whole one, some have one more.
            usual_pairs: mean pairs of a micro-batch of each dataset.
        """
        micro_batches = sum(share / pairs for share, pairs in zip(self.shares, usual_pairs, strict=True))
        updates = Fraction(sum(self.sizes), self.num_lanes) * micro_batches / sum(self.shares)
        before, after = (max(count, int(count * updates + Fraction(1, 2))) for count in (epoch, epoch + 1))
        return after - before

    def choose(self, taken: Sequence[int], coming: Sequence[int]) -> int:
        """The dataset whose next micro-batch leaves a lane nearest to the shares; of equals the first.

        Nearest is the least sum over the datasets of (share * all pairs - pairs of the dataset) squared. Counting what
        the micro-batch would add keeps small shares free of a bias.

        Args:
            taken: parts of pairs that the lane has handed out of each dataset, and `ahead`.
            coming: parts of pairs of each dataset's next micro-batch; of a usual one where it is the lane's first, or
                lanes would begin with small ones.
        """
        whole, total = sum(self.shares), sum(taken)
        behind = [share * total - whole * count for share, count in zip(self.shares, taken, strict=True)]
        common = sum(share * b for share, b in zip(self.shares, behind, strict=True))
        squares = sum(share * share for share in self.shares)

        def growth(dataset: int) -> int:
            size, share = coming[dataset], self.shares[dataset]
            return size * (
                2 * (common - whole * behind[dataset]) + size * (squares - 2 * share * whole + whole * whole)
            )

        return min(range(len(self.shares)), key=growth)

    def ahead(self, turn: int, usual_pairs: Fraction) -> int:
        """Parts of pairs by which a lane's count of a dataset begins ahead of the share (or behind it: then below 0).

        The lanes' counts begin up to half a micro-batch apart from the share, evenly. So at each update some lanes come
        to take a micro-batch of the dataset, in the order of their turns, and not all of them at once.

        Args:
            turn: the lane's; see `Sharing.turn`.
            usual_pairs: mean pairs of a micro-batch of the dataset.
        """
        return int(PARTS * usual_pairs * (2 * turn + 1 - self.num_lanes) / (2 * self.num_lanes))

    def next_epoch(self, cursors: tuple[LaneCursor, ...]) -> tuple[LaneCursor, ...]:
        """Where a lane that is dry goes on: in a new pass over the one dataset, else where its passes stand."""
        return (LaneCursor(cursors[0].pass_ + 1, 0, 0),) if self.is_single else cursors
