"""How the lanes share a dataset of a mixture that has too few pairs to give each lane a window of its own.

A window must hold enough pairs to fill its micro-batches and to bucket them by length. A dataset of a mixture may
be far smaller than K such windows. So its pairs are dealt to fewer *groups* than there are lanes, and the lanes of a
group take turns at the group's micro-batches: lane after lane, window after window, pass after pass. Where a whole pass
is less than a window, a window takes several passes. A dataset with enough pairs has a group for each lane.

The lanes begin apart from one another (`data_pipeline.order.mixture`) in the same order in which they take turns, so
that micro-batches are handed out about in the order of the passes.
"""

import math
from dataclasses import dataclass

MICRO_BATCHES_A_WINDOW = range(16, 65)
"""Of a shared dataset: in smaller windows many are not full, larger ones are padded hardly less."""
GOLDEN = 2654435769
"""2 ** 32 divided by the golden ratio: multiples of it modulo 2 ** 32 are spread evenly, however many there are."""


@dataclass(frozen=True, slots=True)
class Sharing:
    """How K lanes share a dataset."""

    num_lanes: int
    """K."""
    num_groups: int
    """A divisor of K. Pairs are dealt to so many."""
    num_passes: int
    """Passes that a window takes, and that are dealt at once; 1 where there are several groups."""
    dataset: int = 0
    """Its number in the mixture."""
    num_datasets: int = 1

    @classmethod
    def of(
        cls, *, num_pairs: int, target: int, window_pairs: int, num_lanes: int, dataset: int, num_datasets: int
    ) -> "Sharing":
        """As many groups as leave each about a window, three quarters of it at least.

        Args:
            num_pairs: of the dataset.
            target: pairs that a window should hold.
            window_pairs: most that it may hold.
            num_lanes: K.
            dataset: its number in the mixture.
            num_datasets: of the mixture.
        """
        groups = max((n for n in divisors(num_lanes) if 4 * num_pairs >= 3 * target * n), default=1)
        passes = 1 if groups > 1 else max(1, min(round(target / num_pairs), window_pairs // num_pairs))
        return cls(num_lanes, groups, passes, dataset, num_datasets)

    @property
    def num_members(self) -> int:
        """Lanes of each group."""
        return self.num_lanes // self.num_groups

    @property
    def is_shared(self) -> bool:
        """Whether a lane's windows are not its own alone, or hold pairs more than once."""
        return self.num_members > 1 or self.num_passes > 1

    def turn(self, lane: int) -> int:
        """When the lane first takes a micro-batch of the dataset, of K turns.

        It is another order for each dataset: with two, those that are early for one are late for the other; with more,
        each dataset's order begins at another lane.
        """
        if self.num_datasets == 2 and self.dataset == 1:
            return self.num_lanes - 1 - lane
        return (lane + (self.dataset * GOLDEN % (1 << 32) * self.num_lanes >> 32)) % self.num_lanes

    def group(self, lane: int) -> int:
        """The group of a lane."""
        return self.turn(lane) % self.num_groups

    def member(self, lane: int) -> int:
        """The lane's number in its group: it begins with that micro-batch."""
        return self.turn(lane) // self.num_groups


def target_pairs(*, num_pairs: int, rows: int, lane_pairs: int, window_pairs: int) -> int:
    """Pairs that a window of a dataset in a mixture should hold at least.

    Half as many again as a lane's window would have if all datasets were one: what is left of a window makes a
    micro-batch that is not full, and without a mixture the lanes have theirs in the same update. No more than 64
    micro-batches' worth, and down to 16 where few pairs would only be there more often.

    Args:
        num_pairs: of the dataset.
        rows: of a full micro-batch.
        lane_pairs: an epoch's pairs, all datasets together, for each lane.
        window_pairs: most pairs of a window.
    """
    few, many = MICRO_BATCHES_A_WINDOW[0], MICRO_BATCHES_A_WINDOW[-1]
    micro_batches = min(max(few, 3 * math.isqrt(num_pairs)), many)
    return max(1, min(3 * lane_pairs // 2, micro_batches * rows, window_pairs))


def divisors(number: int) -> list[int]:
    """The divisors of a number, in ascending order."""
    small = [n for n in range(1, math.isqrt(number) + 1) if number % n == 0]
    return sorted({*small, *(number // n for n in small)})
