"""Going back to the newest checkpoint, to train on without the updates that did harm."""

from collections.abc import Sequence

Window = tuple[int, int, int]
"""Updates of one epoch that are left out: epoch, first, last."""


class Rewind(Exception):  # noqa: N818 (it is a decision, not an error)
    """Training goes on from the newest checkpoint, without some updates. Raised on all ranks at the same step."""

    def __init__(self, *, reason: str, step: int, left_out: Sequence[Window]) -> None:
        """Decide so.

        Args:
            reason: what happened, in one line.
            step: at which it did.
            left_out: all windows not to train on, this rewind's last.
        """
        super().__init__(f"step {step}: {reason}")
        self.reason = reason
        self.step = step
        self.left_out = list(left_out)


def window_before(epoch: int, update: int, num_updates: int) -> Window:
    """The updates to leave out after harm was seen at one: so many, up to it, of its epoch.

    Args:
        epoch: of the update.
        update: its number within the epoch.
        num_updates: how many, itself included.
    """
    assert num_updates >= 1
    return epoch, max(0, update - num_updates + 1), update


def is_left_out(windows: Sequence[Window], epoch: int, update: int) -> bool:
    """Whether an update is in one of the windows."""
    return any(e == epoch and first <= update <= last for e, first, last in windows)


def may_rewind(windows: Sequence[Window], max_rewinds: int, window: Window) -> bool:
    """Whether one more rewind is allowed, and would change anything: the same window again would not."""
    return len(windows) < max_rewinds and window not in windows
