"""Rewinding: going back to the newest checkpoint, to train on without the harmful updates."""

from collections.abc import Sequence

from trainer.runs.history.skipped import SkippedRange


class Rewind(Exception):  # noqa: N818 (it is a decision, not an error)
    """Raised on all ranks at the same step to go on from the newest checkpoint without some updates."""

    def __init__(self, *, reason: str, step: int, skipped_ranges: Sequence[SkippedRange]) -> None:
        """Decide so.

        Args:
            reason: one line on what happened.
            step: at which it happened.
            skipped_ranges: all ranges to skip, this rewind's last.
        """
        super().__init__(f"step {step}: {reason}")
        self.reason = reason
        self.step = step
        self.skipped_ranges = list(skipped_ranges)


def range_before(epoch: int, update: int, num_updates: int) -> SkippedRange:
    """The range to skip when an update turns out harmful: this many updates up to it, within its epoch.

    Args:
        epoch: of the update.
        update: its number within the epoch.
        num_updates: how many, itself included.
    """
    assert num_updates >= 1
    return epoch, max(0, update - num_updates + 1), update


def is_skipped(ranges: Sequence[SkippedRange], epoch: int, update: int) -> bool:
    """Whether an update is in one of the ranges."""
    return any(e == epoch and first <= update <= last for e, first, last in ranges)


def may_rewind(ranges: Sequence[SkippedRange], max_rewinds: int, new: SkippedRange) -> bool:
    """Whether one more rewind is allowed and would help: skipping the same range again would not."""
    return len(ranges) < max_rewinds and new not in ranges
