"""What is done about updates that went wrong: they are skipped, or the run rewinds and leaves them out."""

import logging
import math

import torch

from configs import RunConfig
from trainer.checkpoint.state import TrainerState
from trainer.engines.batches import Update, UpdateCounts
from trainer.engines.protocol import Engine, StepResult
from trainer.ranks.distributed import World
from trainer.records.metrics import Metrics
from trainer.runs.errors import TrainingError
from trainer.saving import Saver
from trainer.stability.rewind import Rewind, may_rewind, range_before
from trainer.stability.spikes import SpikeDetector

log = logging.getLogger(__name__)


class Recovery:
    """Notes in state and metrics what went wrong, and decides on rewinds; all ranks call it alike."""

    def __init__(
        self,
        config: RunConfig,
        *,
        world: World,
        engine: Engine,
        saver: Saver,
        metrics: Metrics,
        state: TrainerState,
    ) -> None:
        self._config = config
        self._world = world
        self._engine = engine
        self._saver = saver
        self._metrics = metrics
        self._state = state
        self._spikes = SpikeDetector(config.stability.spike_score, config.stability.spike_window, state.recent_losses)

    def note_skip(self, update: Update, result: StepResult, losses: dict[int, torch.Tensor]) -> None:
        """Say which update was left out, and why; the learning rate does not advance with it."""
        state, most = self._state, self._config.training.max_skipped_in_a_row
        state.skipped_updates += 1
        state.skipped_in_a_row += 1
        mine = sorted(lane for lane, both in losses.items() if not math.isfinite(both[0]))
        lanes = sorted(lane for lanes in self._world.gather(mine) for lane in lanes)
        self._metrics.event(
            state.step,
            {
                "event": "skipped_update",
                "reason": "the gradient is not finite",
                "epoch": update.epoch,
                "update": update.number,
                "micro_batches": list(range(self._config.stream.micro_batches)),
                "not_finite_losses": lanes,
                "grad_norm": float(result.grad_norm),
                "loss_scale": self._engine.loss_scale,
                "pairs_digest": update.counts.pairs_digest,
            },
        )
        where = f"the loss of micro-batch {', '.join(map(str, lanes))} is not either" if lanes else "all losses are"
        log.warning(
            "step %d skipped: the gradient is not finite, %s (epoch %d, update %d)",
            state.step,
            where,
            update.epoch,
            update.number,
        )
        if state.skipped_in_a_row >= most:
            self._rewind(update, most, f"{most} updates in a row had a gradient that is not finite")

    def look_for_spike(self, update: Update, loss: float) -> None:
        """Rewind where an update's loss is far above those before it."""
        spike = self._spikes.observe(loss)
        if spike is None:
            return
        self._rewind(update, self._config.stability.skip_updates, str(spike))

    def note_skipped_range(self, epoch: int, number: int, counts: UpdateCounts) -> None:
        """Say that an update is passed over."""
        log.warning("epoch %d, update %d is left out", epoch, number)
        self._metrics.event(
            self._state.step,
            {
                "event": "left_out",
                "epoch": epoch,
                "update": number,
                "pairs": counts.pairs,
                "pairs_digest": counts.pairs_digest,
            },
        )

    def _rewind(self, update: Update, num_updates: int, reason: str) -> None:
        """Leave for the newest checkpoint, and leave out so many updates that end with this one.

        Raises:
            Rewind: always, but for
            TrainingError: there is no checkpoint, or it was done often enough.
        """
        state = self._state
        self._saver.commit()
        harmful = range_before(update.epoch, update.number, num_updates)
        if self._saver.saved_step is None:
            raise TrainingError(f"{reason}; at step {state.step}, and there is no checkpoint to rewind to")
        if not may_rewind(state.skipped_ranges, self._config.stability.max_rewinds, harmful):
            raise TrainingError(f"{reason}; at step {state.step}, after {len(state.skipped_ranges)} rewinds")
        log.warning(
            "step %d: %s; rewinding, to leave out updates %d to %d of epoch %d",
            state.step,
            reason,
            *harmful[1:],
            harmful[0],
        )
        raise Rewind(reason=reason, step=state.step, skipped_ranges=[*state.skipped_ranges, harmful])
