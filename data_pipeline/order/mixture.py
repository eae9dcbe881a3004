"""Which dataset of several a lane's next micro-batch comes from, as a function of integers.

With one dataset an epoch is a pass over it. With several, an epoch is as many pairs as they have together, and each
dataset goes through passes of its own, which do not stop where an epoch does: every pass uses each of its pairs once.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from data_pipeline.stream.state import LaneCursor

SCALE = 1 << 32
"""Shares are counted in parts of it: sums of integers do not depend on the machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixture:
    """The datasets' sizes and shares. A lane keeps to the shares by itself; it knows nothing of other lanes."""

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

    def quota(self, num_epochs: int, lane: int) -> int:
        """Pairs that a lane has handed out when so many epochs are over; a micro-batch may go beyond it."""
        return (num_epochs * sum(self.sizes) + self.num_lanes - 1 - lane) // self.num_lanes

    def choose(self, taken: Sequence[int], coming: Sequence[int]) -> int:
        """The dataset whose next micro-batch leaves a lane nearest to the shares; of equals the first.

        Nearest is the least sum over the datasets of (share * all pairs - pairs of the dataset) squared. Counting what
        the micro-batch would add keeps small shares free of a bias.

        Args:
            taken: pairs that the lane has handed out of each dataset.
            coming: pairs of each dataset's next micro-batch.
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

    def start(self, epoch: int, lane: int, passes: Sequence[int]) -> tuple[LaneCursor, ...]:
        """A lane's cursors at the start of an epoch where every dataset begins a new pass, with the shares kept so far.

        Args:
            epoch: which.
            lane: which.
            passes: the pass that each dataset begins.
        """
        if self.is_single:
            return (LaneCursor(passes[0], 0, 0),)
        done = self.quota(epoch, lane)
        return tuple(LaneCursor(pass_, 0, 0, self.part(done, number)) for number, pass_ in enumerate(passes))

    def next_epoch(self, cursors: tuple[LaneCursor, ...]) -> tuple[LaneCursor, ...]:
        """Where a lane that is dry goes on: in a new pass over the one dataset, else where its passes stand."""
        return (LaneCursor(cursors[0].pass_ + 1, 0, 0),) if self.is_single else cursors
