"""Rewinding: going back to the newest checkpoint, to train on without the harmful updates."""

import contextlib
from collections.abc import Collection, Iterator, Sequence

from configs import UserError
from trainer.checkpoint.format import Checkpoint
from trainer.engines.protocol import Engine, NotFiniteError
from trainer.runs.history import SkippedRange
from trainer.runs.layout import step_of


class Rewind(Exception):  # noqa: N818 (it is a decision, not an error)
    """Raised on all ranks at the same step to go on from the newest checkpoint without some updates."""

    def __init__(
        self,
        *,
        reason: str,
        step: int,
        skipped_ranges: Sequence[SkippedRange] | None,
        passed_over: Collection[int] = (),
    ) -> None:
        """Decide so.

        Args:
            reason: one line on what happened.
            step: at which it happened.
            skipped_ranges: all ranges to skip, this rewind's last; None: those of the checkpoint.
            passed_over: steps whose checkpoints cannot be trained on.
        """
        super().__init__(f"step {step}: {reason}")
        self.reason = reason
        self.step = step
        self.skipped_ranges = None if skipped_ranges is None else list(skipped_ranges)
        self.passed_over = frozenset(passed_over)

    @property
    def is_start(self) -> bool:
        """Whether no update has been made since this process began."""
        return self.skipped_ranges is None


NONE = Rewind(reason="", step=0, skipped_ranges=None)
"""There was none."""


@contextlib.contextmanager
def passing_over(engine: Engine, checkpoint: Checkpoint | None, rewind: Rewind) -> Iterator[None]:
    """Go on from an older checkpoint if the engine cannot be trained with this one's weights; called by all ranks.

    Args:
        engine: with the checkpoint's weights; it is closed then.
        checkpoint: None for a run that begins.
        rewind: the one that led to it.

    Raises:
        Rewind: past this checkpoint.
        UserError: there is none.
    """
    try:
        yield
    except NotFiniteError as error:
        engine.close()
        if checkpoint is None or (step := step_of(checkpoint.folder)) is None:
            raise UserError(f"model: {error}, with the weights that it begins with") from error
        reason = f"{error}, with the weights of step {step}"
        passed_over = {*rewind.passed_over, step}
        raise Rewind(reason=reason, step=step, skipped_ranges=rewind.skipped_ranges, passed_over=passed_over) from error


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
