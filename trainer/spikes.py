"""Bad updates: losses that jump, updates that are skipped or left out, and the way back to the newest checkpoint."""

import logging
import math
import statistics
from collections.abc import Collection, Sequence
from typing import NoReturn

from configs import StabilitySection, UserError
from trainer.checkpoint.format import Checkpoint
from trainer.checkpoint.save import Saver
from trainer.context import RunContext
from trainer.engines.batches import Losses, NotFiniteError, StepResult, Update
from trainer.runs.failure import TrainingError
from trainer.runs.history import SkippedRange
from trainer.runs.layout import step_of

MAD_TO_SIGMA = 1.4826
"""Ratio of a normal distribution's standard deviation to its median absolute deviation."""
FLOOR = 0.01
"""Minimum deviation, as a fraction of the median, so that after a flat stretch a ripple is not a spike."""
MIN_HISTORY = 16
"""Number of losses needed before any can be a spike."""

log = logging.getLogger(__name__)


class Rewind(Exception):  # noqa: N818 (it is a decision, not an error)
    """Raised on all ranks at the same step to resume from the newest checkpoint without some updates."""

    def __init__(
        self,
        reason: str,
        *,
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
        self.skipped_ranges = skipped_ranges
        self.passed_over = frozenset(passed_over)


def past(checkpoint: Checkpoint | None, rewind: Rewind | None, error: NotFiniteError) -> Rewind:
    """The rewind past a checkpoint whose weights nothing can be trained with.

    Args:
        checkpoint: None for a run that begins.
        rewind: the one that led to it.
        error: what came of its weights.

    Raises:
        UserError: there is no checkpoint.
    """
    if checkpoint is None or (step := step_of(checkpoint.folder)) is None:
        raise UserError(f"model: {error}, with the weights that it begins with") from error
    skipped, before = (None, frozenset()) if rewind is None else (rewind.skipped_ranges, rewind.passed_over)
    reason = f"{error}, with the weights of step {step}"
    return Rewind(reason, step=step, skipped_ranges=skipped, passed_over={*before, step})


def is_skipped(ranges: Sequence[SkippedRange], epoch: int, update: int) -> bool:
    """Whether an update is in one of the ranges."""
    return any(e == epoch and first <= update <= last for e, first, last in ranges)


def spike(loss: float, losses: list[float], section: StabilitySection) -> str | None:
    """Why the loss of an update is a spike: it is far above the median of those before, robustly measured.

    Args:
        loss: mean over the update's target tokens, the same on all ranks.
        losses: of the last updates, oldest first. A loss that is finite and no spike is added to them.
        section: of the run.
    """
    del losses[: -section.spike_window]
    if not math.isfinite(loss):  # such updates are skipped
        return None
    if section.spike_score > 0 and len(losses) >= MIN_HISTORY:
        median = statistics.median(losses)
        mad = statistics.median(abs(x - median) for x in losses)
        score = (loss - median) / max(MAD_TO_SIGMA * mad, FLOOR * abs(median), 1e-6)
        if score > section.spike_score:
            return f"the loss {loss:.4f} is {score:.1f} deviations above the median {median:.4f}"
    losses.append(loss)
    return None


def go_back(run: RunContext, saver: Saver, update: Update, num_updates: int, reason: str, *, step: int) -> NoReturn:
    """Go back to the newest checkpoint, to skip this many updates up to this one, within its epoch.

    Raises:
        Rewind: always, except for
        TrainingError: there is no checkpoint, or there were too many rewinds.
    """
    saver.commit()
    ranges, epoch, last = run.state.skipped_ranges, update.epoch, update.number
    harmful = epoch, max(0, last - num_updates + 1), last
    if not saver.can_rewind:
        raise TrainingError(f"{reason}; at step {step}, and there is no checkpoint to rewind to")
    if len(ranges) >= run.config.stability.max_rewinds or harmful in ranges:  # the same again would find the same
        raise TrainingError(f"{reason}; at step {step}, after {len(ranges)} rewinds")
    log.warning("step %d: %s; rewinding, to skip updates %d to %d of epoch %d", step, reason, *harmful[1:], epoch)
    raise Rewind(reason, step=step, skipped_ranges=[*ranges, harmful])


def note_skip(run: RunContext, update: Update, result: StepResult, losses: Losses, *, step: int) -> None:
    """Log which update was skipped, and which losses were not finite; all ranks call it alike."""
    mine = sorted(lane for lanes, both in losses.items() if not math.isfinite(both[0]) for lane in lanes)
    lanes = sorted(lane for lanes in run.world.gather(mine) for lane in lanes)
    figures = {
        "event": "skipped_update",
        "reason": "the gradient is not finite",
        "epoch": update.epoch,
        "update": update.number,
        "micro_batches": list(range(run.config.stream.micro_batches)),
        "not_finite_losses": lanes,
        "grad_norm": float(result.grad_norm),
        "loss_scale": run.engine.loss_scale,
        "pairs_digest": update.counts.pairs_digest,
    }
    run.metrics.event(step, figures)
    where = f"the loss of micro-batch {', '.join(map(str, lanes))} is not either" if lanes else "all losses are"
    log.warning(
        "step %d skipped: the gradient is not finite, %s (epoch %d, update %d)",
        step,
        where,
        update.epoch,
        update.number,
    )


def note_left_out(run: RunContext, update: Update, reason: str) -> None:
    """Log that an update is left out."""
    log.info("epoch %d, update %d is left out: %s", update.epoch, update.number, reason)
    figures = {"event": "left_out", "epoch": update.epoch, "update": update.number, "reason": reason}
    figures |= {"pairs": update.counts.pairs, "pairs_digest": update.counts.pairs_digest}
    run.metrics.event(run.state.step, figures)
