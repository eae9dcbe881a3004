"""The training loop: next update, train on it, log, evaluate, save, stop if asked."""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import torch

from configs import RunConfig
from data_pipeline.stream.batch import MicroBatch
from data_pipeline.stream.reader import StreamReader, StreamState
from trainer.batches import UpdateCounts, count, empty_batch, micro_batch_seed, to_device, wrap
from trainer.checkpoint.manager import CheckpointManager
from trainer.distributed import World
from trainer.engine import Engine
from trainer.evaluation import Evaluator
from trainer.metrics import Metrics
from trainer.pairs import PairLog
from trainer.schedule import learning_rate

log = logging.getLogger(__name__)


class TrainingError(Exception):
    """The run cannot go on: gradients stay non-finite, or nothing can be saved."""


@dataclass(kw_only=True, slots=True)
class TrainerState:
    """All that the trainer itself remembers."""

    step: int = 0
    """Updates done, skipped ones included."""
    skipped_updates: int = 0
    skipped_in_a_row: int = 0
    target_tokens: int = 0
    seconds: float = 0.0
    """Wall time in the loop, over all restarts."""
    scores: dict[int, float] = field(default_factory=dict)
    """Validation BLEU by step."""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, tree: Mapping[str, Any]) -> "TrainerState":
        """Read what `to_json` gave."""
        scores = {int(step): float(score) for step, score in tree["scores"].items()}
        return cls(**{**tree, "scores": scores})


@dataclass(kw_only=True, slots=True, frozen=True)
class Update:
    """This rank's part of an update, and what is known of the whole."""

    epoch: int
    number: int
    """Within the epoch."""
    micro_batches: list[MicroBatch | None]
    counts: UpdateCounts
    """Over all ranks."""
    stop_requested: bool
    time_is_up: bool


class Trainer:
    """Trains until a limit is reached or someone asks to stop."""

    def __init__(
        self,
        config: RunConfig,
        *,
        world: World,
        engine: Engine,
        reader: StreamReader,
        evaluator: Evaluator,
        checkpoints: CheckpointManager,
        metrics: Metrics,
        pair_log: PairLog,
        state: TrainerState,
        stop_requested: Callable[[], bool],
    ) -> None:
        self._config = config
        self._world = world
        self._engine = engine
        self._reader = reader
        self._evaluator = evaluator
        self._checkpoints = checkpoints
        self._metrics = metrics
        self._pair_log = pair_log
        self._state = state
        self._stop_requested = stop_requested
        self._window = _Window(world.device)
        self._saved_step = self._evaluated_step = state.step if state.step else -1
        self._clock = time.monotonic()

    def fit(self) -> Literal["finished", "stopped"]:
        """Train. The checkpoint of the last step is there when this returns.

        Raises:
            TrainingError: the run cannot go on.
            DataError: a shard is broken.
        """
        while (update := self._next_update()) is not None:
            self._train_on(update)
            self._log_if_due(update)
            self._evaluate_if_due()
            self._save_if_due()
            if update.stop_requested:
                self._save()
                return "stopped"
            if update.time_is_up:
                break
        self._evaluate()
        self._save()
        return "finished"

    def _next_update(self) -> Update | None:
        """Fetch an update's micro-batches, and count over all ranks what it holds. None where the run is at its end."""
        training = self._config.training
        self._tick()
        while self._state.step < training.max_updates:
            if training.max_epochs is not None and self._reader.epoch >= training.max_epochs:
                return None
            epoch, number = self._reader.epoch, self._reader.update
            begin = time.monotonic()
            micro_batches = self._reader.next_update()
            self._window.waiting_seconds += time.monotonic() - begin
            time_is_up = training.max_minutes is not None and self._state.seconds > 60 * training.max_minutes
            *numbers, stops, times = self._world.sum(
                [*count(micro_batches).numbers(), int(self._stop_requested()), int(time_is_up)]
            )
            counts = UpdateCounts(
                **dict(zip(UpdateCounts.__dataclass_fields__, numbers, strict=True))  # in their order
            )
            if counts.target_tokens == 0:
                self._reader.end_epoch()
                log.info("epoch %d ended after %d updates", epoch, number)
                continue
            return Update(
                epoch=epoch,
                number=number,
                micro_batches=micro_batches,
                counts=counts,
                stop_requested=stops > 0,
                time_is_up=times > 0,
            )
        return None

    def _train_on(self, update: Update) -> None:
        """One optimizer step on the token-normalised loss of the whole update."""
        last = len(update.micro_batches) - 1
        for slot, micro_batch in enumerate(update.micro_batches):
            if micro_batch is None:
                self._engine.accumulate(empty_batch(self._world.device), scale=0.0, is_last=slot == last)
                continue
            torch.manual_seed(micro_batch_seed(self._config.seed, update.epoch, update.number, micro_batch.lane))
            out = self._engine.accumulate(
                to_device(micro_batch, self._world.device),
                scale=1 / update.counts.target_tokens,
                is_last=slot == last,
            )
            self._window.add_losses(out.loss_sum, out.nll_sum)
        state, optimizer = self._state, self._config.optimizer
        lr = learning_rate(
            self._config.schedule,
            peak=optimizer.lr,
            update=state.step - state.skipped_updates + 1,
            max_updates=self._config.training.max_updates,
        )
        result = self._engine.step(lr)
        state.step += 1
        state.target_tokens += update.counts.target_tokens
        self._window.add_update(update.counts, lr, result.grad_norm, self._config.stream.micro_batches)
        self._pair_log.write(state.step, update.micro_batches)
        state.skipped_in_a_row = 0 if result.applied else state.skipped_in_a_row + 1
        if not result.applied:
            self._note_skip(update)

    def _note_skip(self, update: Update) -> None:
        """Say which update was left out; the learning rate does not advance with it."""
        state = self._state
        state.skipped_updates += 1
        self._metrics.event(
            state.step,
            {
                "event": "skipped_update",
                "reason": "the gradient is not finite",
                "epoch": update.epoch,
                "update": update.number,
                "micro_batches": list(range(self._config.stream.micro_batches)),
                "pairs_digest": update.counts.pairs_digest,
            },
        )
        log.warning(
            "step %d skipped: the gradient is not finite (epoch %d, update %d)",
            state.step,
            update.epoch,
            update.number,
        )
        if state.skipped_in_a_row >= self._config.training.max_skipped_in_a_row:
            raise TrainingError(
                f"{state.skipped_in_a_row} updates in a row had a gradient that is not finite; at step {state.step}"
            )

    def _log_if_due(self, update: Update) -> None:
        state = self._state
        if state.step % self._config.training.log_every and state.step != self._config.training.max_updates:
            return
        self._tick()
        figures = self._window.figures(self._world)
        figures |= {
            "epoch": update.epoch,
            "update": update.number,
            "skipped_updates": state.skipped_updates,
            "corrupt_blocks": self._world.sum([self._reader.num_corrupt_blocks])[0],
            "total_target_tokens": state.target_tokens,
            "total_seconds": round(state.seconds, 3),
        }
        self._metrics.train(state.step, figures)
        log.info(
            "step %d  epoch %d  loss %.4f  ppl %.2f  norm %.2f  lr %.2e  %.0f tok/s  padding %.1f%%",
            state.step,
            update.epoch,
            figures["loss"],
            figures["perplexity"],
            figures["grad_norm"],
            figures["lr"],
            figures["tokens_per_second"],
            100 * figures["padding"],
        )
        self._window = _Window(self._world.device)

    def _evaluate_if_due(self) -> None:
        if _is_due(self._state.step, self._config.evaluation.every_updates):
            self._evaluate()

    def _evaluate(self) -> None:
        """Score this step's weights, once."""
        step = self._state.step
        if self._evaluated_step == step or step == 0:
            return
        pause = time.monotonic()
        evaluation = self._evaluator.evaluate(self._engine, step)
        self._evaluated_step = step
        self._state.scores[step] = evaluation.scores.bleu
        samples = list(zip(evaluation.sources, evaluation.references, evaluation.hypotheses, strict=True))
        self._metrics.evaluation(step, evaluation.figures(), samples[: self._config.evaluation.samples])
        log.info(
            "step %d  valid loss %.4f  BLEU %.2f  chrF %.2f  (%s, %.1f s)",
            step,
            evaluation.loss,
            evaluation.scores.bleu,
            evaluation.scores.chrf,
            evaluation.scores.bleu_signature,
            evaluation.seconds,
        )
        for name, part in evaluation.parts.items():
            log.info("  %s: loss %.4f  BLEU %.2f  chrF %.2f", name, part.loss, part.scores.bleu, part.scores.chrf)
        self._window.pause(time.monotonic() - pause)

    def _save_if_due(self) -> None:
        if _is_due(self._state.step, self._config.checkpoint.every_updates):
            self._save()

    def _save(self) -> None:
        """Write this step's checkpoint, once. Training goes on after a failure, up to a limit."""
        if self._saved_step == self._state.step or self._state.step == 0:
            return
        pause = time.monotonic()
        self._tick()
        stream = StreamState.merge(self._world.gather(self._reader.state()))
        state = {"trainer": self._state.to_json(), "stream": stream.to_json()}
        if self._checkpoints.save(self._state.step, self._engine, state, scores=self._state.scores):
            self._saved_step = self._state.step
        elif self._checkpoints.num_failures >= self._config.checkpoint.max_failures:
            raise TrainingError(f"{self._checkpoints.num_failures} saves in a row failed; at step {self._state.step}")
        seconds = time.monotonic() - pause
        self._metrics.event(
            self._state.step,
            {
                "event": "checkpoint",
                "succeeded": self._saved_step == self._state.step,
                "seconds": round(seconds, 3),
            },
        )
        self._window.pause(seconds)

    def _tick(self) -> None:
        """Add the time since the last tick to the run's."""
        now = time.monotonic()
        self._state.seconds += now - self._clock
        self._clock = now


class _Window:
    """What is summed up between two log steps. Losses stay on the device until then."""

    def __init__(self, device: torch.device) -> None:
        self._begin = time.monotonic()
        self._losses = torch.zeros(2, dtype=torch.float64 if device.type == "cpu" else torch.float32, device=device)
        self._counts = [0] * len(UpdateCounts.__dataclass_fields__)
        self._num_updates = 0
        self._num_slots = 0
        self._lr = 0.0
        self._grad_norm: torch.Tensor | float = 0.0
        self._paused = 0.0
        self.waiting_seconds = 0.0

    def add_losses(self, loss_sum: torch.Tensor, nll_sum: torch.Tensor) -> None:
        self._losses += torch.stack([loss_sum, nll_sum])

    def add_update(self, counts: UpdateCounts, lr: float, grad_norm: torch.Tensor | float, num_slots: int) -> None:
        self._counts = [a + b for a, b in zip(self._counts, counts.numbers(), strict=True)]
        self._num_updates += 1
        self._num_slots += num_slots
        self._lr, self._grad_norm = lr, grad_norm

    def pause(self, seconds: float) -> None:
        """Leave out time that was not spent training."""
        self._paused += seconds

    def figures(self, world: World) -> dict[str, Any]:
        """Means over the window; the one place where the host waits for the device."""
        loss_sum, nll_sum = world.sum_floats(self._losses.tolist())
        counts = UpdateCounts(**dict(zip(UpdateCounts.__dataclass_fields__, self._counts, strict=True)))
        seconds = max(time.monotonic() - self._begin - self._paused, 1e-9)
        nll = nll_sum / counts.target_tokens
        return {
            "loss": loss_sum / counts.target_tokens,
            "perplexity": float(torch.tensor(nll, dtype=torch.float64).exp()),
            "grad_norm": float(self._grad_norm),
            "lr": self._lr,
            "updates": self._num_updates,
            "pairs": counts.pairs,
            "target_tokens": counts.target_tokens,
            "source_tokens": counts.source_tokens,
            "padding": 1 - (counts.target_tokens + counts.source_tokens) / counts.padded_tokens,
            "empty_micro_batches": 1 - counts.micro_batches / self._num_slots,
            "tokens_per_second": counts.target_tokens / seconds,
            "seconds_per_update": seconds / self._num_updates,
            "waiting_for_data": self.waiting_seconds / seconds,
            "pairs_digest": wrap(counts.pairs_digest),
        }


def _is_due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0
