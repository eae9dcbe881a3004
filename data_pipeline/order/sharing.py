"""How lanes share a dataset of a mixture that has too few pairs for a window per lane.

A window must hold enough pairs to fill its micro-batches and to bucket them by length, but a dataset may be far smaller
than K such windows. So its pairs are dealt to fewer *groups* than there are lanes, and the lanes of a group take the
group's micro-batches in turn: lane after lane, window after window, pass after pass. If a pass has fewer pairs than a
window, a window takes several passes. A dataset with enough pairs has one group per lane.

The lanes start at different offsets (`data_pipeline.order.mixture`), in the order of their turns, so that micro-batches
are handed out about in the order of the passes.
"""

import math
from dataclasses import dataclass

MICRO_BATCHES_A_WINDOW = range(16, 65)
"""For a shared dataset: in smaller windows many are not full, larger ones are padded hardly less."""
GOLDEN = 2654435769
"""2 ** 32 divided by the golden ratio: multiples of it modulo 2 ** 32 are spread evenly, however many there are."""


@dataclass(frozen=True, slots=True)
class Sharing:
    """How K lanes share a dataset."""

    num_lanes: int
    """K."""
    num_groups: int
    """Number of groups that pairs are dealt to, a divisor of K."""
    num_passes: int
    """Passes in a window, which are dealt together; 1 if there are several groups."""
    dataset: int = 0
    """Its number in the mixture."""
    num_datasets: int = 1

    @classmethod
    def of(
        cls, *, num_pairs: int, target: int, window_pairs: int, num_lanes: int, dataset: int, num_datasets: int
    ) -> "Sharing":
        """Choose the number of groups so that each has about a window of pairs, at least three quarters of one.

        Args:
            num_pairs: of the dataset.
            target: pairs that a window should hold.
            window_pairs: maximum number of pairs of a window.
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
        """Whether lanes share windows, or windows hold pairs more than once."""
        return self.num_members > 1 or self.num_passes > 1

    def turn(self, lane: int) -> int:
        """The turn, of K, at which the lane first takes a micro-batch of the dataset.

        The order differs between datasets: with two, lanes that are early for one are late for the other; with more,
        each dataset's order starts at a different lane.
        """
        if self.num_datasets == 2 and self.dataset == 1:
            return self.num_lanes - 1 - lane
        return (lane + (self.dataset * GOLDEN % (1 << 32) * self.num_lanes >> 32)) % self.num_lanes

    def group(self, lane: int) -> int:
        """The group of a lane."""
        return self.turn(lane) % self.num_groups

    def member(self, lane: int) -> int:
        """The lane's number in its group, which is also the number of its first micro-batch."""
        return self.turn(lane) // self.num_groups


def target_pairs(*, num_pairs: int, rows: int, lane_pairs: int, window_pairs: int) -> int:
    """Pairs that a window of a dataset in a mixture should hold at least.

    It is 1.5 times a lane's window if all datasets were one: the rest of a window makes a micro-batch that is not full,
    and without a mixture all lanes have theirs in the same update. It is at most 64 micro-batches, and as few as 16 if
    more would only repeat the few pairs more often.

    Args:
        num_pairs: of the dataset.
        rows: rows of a full micro-batch.
        lane_pairs: pairs of an epoch for each lane, of all datasets together.
        window_pairs: most pairs of a window.
    """
    few, many = MICRO_BATCHES_A_WINDOW[0], MICRO_BATCHES_A_WINDOW[-1]
    micro_batches = min(max(few, 3 * math.isqrt(num_pairs)), many)
    return max(1, min(3 * lane_pairs // 2, micro_batches * rows, window_pairs))


def divisors(number: int) -> list[int]:
    """The divisors of a number, in ascending order."""
    small = [n for n in range(1, math.isqrt(number) + 1) if number % n == 0]
    return sorted({*small, *(number // n for n in small)})
