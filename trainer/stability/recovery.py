"""Handling of bad updates: they are skipped, or the run rewinds and skips them."""

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainer.context import RunContext
from trainer.engines.batches import Losses, Update, UpdateCounts
from trainer.engines.protocol import StepResult
from trainer.evaluation.outcome import Evaluation
from trainer.runs.failure import TrainingError
from trainer.saving import Saver
from trainer.stability.rewind import Rewind, may_rewind, range_before
from trainer.stability.spikes import SpikeDetector

MOST_PENDING = 2
"""Losses at most that wait for their sums: the newest update's, where it is settled, and that of the one before."""

log = logging.getLogger(__name__)


@dataclass(kw_only=True, slots=True, frozen=True)
class PendingLoss:
    """An update whose loss has not been summed over the ranks yet."""

    update: Update
    step: int
    loss_sum: float
    is_applied: bool


class Recovery:
    """Records problems in state and metrics, and decides on rewinds; all ranks make the same calls."""

    def __init__(self, run: RunContext, saver: Saver) -> None:
        self._run = run
        self._saver = saver
        section = run.config.stability
        self._spikes = SpikeDetector(section.spike_score, section.spike_window, run.state.recent_losses)
        self._pending: list[PendingLoss] = []  # oldest first, and those that are told of before others
        self._num_told = 0

    def tell(self) -> tuple[float, ...]:
        """This rank's parts of losses not checked yet, filled up with 0 to `MOST_PENDING`; for `look_for_spikes`."""
        self._num_told = len(self._pending)
        assert self._num_told <= MOST_PENDING
        return tuple([late.loss_sum for late in self._pending] + [0.0] * (MOST_PENDING - self._num_told))

    def watch(self, update: Update, loss_sum: float, *, step: int, is_applied: bool) -> None:
        """Remember an update's loss until it is summed over the ranks: see `look_for_spikes` and `check_now`.

        Args:
            update: that was made.
            loss_sum: this rank's.
            step: the update's number.
            is_applied: whether its gradient was finite.
        """
        self._pending.append(PendingLoss(update=update, step=step, loss_sum=loss_sum, is_applied=is_applied))

    def look_for_spikes(self, loss_sums: Sequence[float]) -> None:
        """Record the losses that were told of, and rewind if one is far above those before it.

        Args:
            loss_sums: the sums over all ranks of what `tell` gave.
        """
        told, self._pending = self._pending[: self._num_told], self._pending[self._num_told :]
        self._num_told = 0
        for late, loss_sum in zip(told, loss_sums, strict=False):
            self._look_for_spike(late, loss_sum)

    def _look_for_spike(self, late: PendingLoss, loss_sum: float) -> None:
        loss = loss_sum / late.update.counts.divisor(self._run.config.training.normalize_by)
        self._saver.newest_loss = loss
        spike = self._spikes.observe(loss) if late.is_applied else None
        if spike is not None:
            self._rewind(late.update, self._run.config.stability.skip_updates, str(spike), step=late.step)

    def check_now(self) -> None:
        """Do so at once, waiting for the sum: before weights are saved or evaluated, and at the end."""
        assert self._num_told == 0, "their sums are on the way"
        if self._pending:
            _, loss_sums = self._run.world.begin_sums([], self.tell())()
            self.look_for_spikes(loss_sums)

    def note_skip(self, update: Update, result: StepResult, losses: Losses, *, step: int) -> None:
        """Log which update was skipped, and why, once the state has counted it; the learning rate does not advance."""
        state, most = self._run.state, self._run.config.training.max_skipped_in_a_row
        mine = sorted(lane for lanes, both in losses.items() if not math.isfinite(both[0]) for lane in lanes)
        lanes = sorted(lane for lanes in self._run.world.gather(mine) for lane in lanes)
        self._run.metrics.event(
            step,
            {
                "event": "skipped_update",
                "reason": "the gradient is not finite",
                "epoch": update.epoch,
                "update": update.number,
                "micro_batches": list(range(self._run.config.stream.micro_batches)),
                "not_finite_losses": lanes,
                "grad_norm": float(result.grad_norm),
                "loss_scale": self._run.engine.loss_scale,
                "pairs_digest": update.counts.pairs_digest,
            },
        )
        where = f"the loss of micro-batch {', '.join(map(str, lanes))} is not either" if lanes else "all losses are"
        log.warning(
            "step %d skipped: the gradient is not finite, %s (epoch %d, update %d)",
            step,
            where,
            update.epoch,
            update.number,
        )
        if state.skipped_in_a_row >= most:
            self._rewind(update, most, f"{most} updates in a row had a gradient that is not finite", step=step)

    def note_evaluation(self, step: int, evaluation: Evaluation, figures: Mapping[str, float]) -> None:
        """Remember an evaluation's figures, and log which of its sets have a loss that is not finite."""
        self._run.state.note(step, {key: figures[key] for key in self._run.config.evaluation.at_once})
        parts = evaluation.parts or {"": evaluation}
        wrong = {name: part.loss for name, part in parts.items() if not math.isfinite(part.loss)}
        if wrong:
            self._run.metrics.event(step, {"event": "loss_not_finite", "sets": list(filter(None, wrong))})
            sets = f" of {', '.join(wrong)}" if evaluation.parts else ""
            log.warning("step %d: the validation loss%s is not finite: %s", step, sets, next(iter(wrong.values())))

    def note_skipped_range(self, epoch: int, number: int, counts: UpdateCounts) -> None:
        """Log that an update is in a skipped range."""
        log.warning("epoch %d, update %d is skipped", epoch, number)
        self._note_left_out(epoch, number, counts, {})

    def note_weightless(self, epoch: int, number: int, counts: UpdateCounts) -> None:
        """Log that an update is left out since all of its pairs have weight 0."""
        log.info("epoch %d, update %d is left out: all of its pairs have weight 0", epoch, number)
        self._note_left_out(epoch, number, counts, {"reason": "all of its pairs have weight 0"})

    def _note_left_out(self, epoch: int, number: int, counts: UpdateCounts, more: Mapping[str, str]) -> None:
        figures = {"event": "left_out", "epoch": epoch, "update": number, "pairs": counts.pairs}
        self._run.metrics.event(self._run.state.step, {**figures, "pairs_digest": counts.pairs_digest, **more})

    def _rewind(self, update: Update, num_updates: int, reason: str, *, step: int) -> None:
        """Go back to the newest checkpoint, and skip this many updates up to this one.

        Raises:
            Rewind: always, but for
            TrainingError: there is no checkpoint, or there were too many rewinds.
        """
        state = self._run.state
        self._saver.commit()
        harmful = range_before(update.epoch, update.number, num_updates)
        if self._saver.saved_step is None:
            raise TrainingError(f"{reason}; at step {step}, and there is no checkpoint to rewind to")
        if not may_rewind(state.skipped_ranges, self._run.config.stability.max_rewinds, harmful):
            raise TrainingError(f"{reason}; at step {step}, after {len(state.skipped_ranges)} rewinds")
        log.warning(
            "step %d: %s; rewinding, to skip updates %d to %d of epoch %d",
            step,
            reason,
            *harmful[1:],
            harmful[0],
        )
        raise Rewind(reason=reason, step=step, skipped_ranges=[*state.skipped_ranges, harmful])
