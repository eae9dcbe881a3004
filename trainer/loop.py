"""The training loop: next update, train on it, log, evaluate, save, stop if asked."""

import contextlib
import functools
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import torch

from configs import RunConfig
from trainer.checkpoint.state import TrainerState
from trainer.curriculum import Curriculum
from trainer.datasets import dataset_names
from trainer.engines import replicas
from trainer.engines.batches import HostCopy, Losses, Update
from trainer.engines.layouts import passes
from trainer.engines.protocol import Engine
from trainer.engines.update_sizes import UpdateSizes
from trainer.evaluation.evaluator import Evaluator
from trainer.evaluation.queued.queue import ScoreQueue
from trainer.limits import Limits, reasons
from trainer.lookahead import GlobalFlags, LocalFlags, Lookahead
from trainer.ranks.activities import Activities
from trainer.ranks.device import is_host, seed
from trainer.ranks.distributed import World
from trainer.records.interval import Interval
from trainer.records.machine import machine_figures
from trainer.records.metrics import Metrics
from trainer.records.names import TARGET_TOKENS
from trainer.records.updates import UpdateRecords
from trainer.records.work import Work
from trainer.runs.errors import TrainingError
from trainer.runs.ledger import Ledger
from trainer.runs.status import write_status
from trainer.saving import Saver
from trainer.stability import memory
from trainer.stability.recovery import Recovery
from trainer.stability.rewind import is_skipped
from trainer.terminal.bar import View
from trainer.terminal.forecast import Forecast
from trainer.terminal.steps import log_evaluation, log_step

log = logging.getLogger(__name__)


class Trainer:
    """Trains until a limit is reached or someone asks to stop."""

    def __init__(
        self,
        config: RunConfig,
        *,
        world: World,
        engine: Engine,
        updates: Lookahead,
        evaluator: Evaluator,
        saver: Saver,
        metrics: Metrics,
        records: UpdateRecords,
        state: TrainerState,
        activities: Activities,
        ledger: Ledger | None,
        stop_requested: Callable[[], bool],
        queue: ScoreQueue | None = None,
        forecast: Forecast | None = None,
        begins_trained: bool = False,
    ) -> None:
        """Assemble the parts.

        Args:
            forecast: predicts the end; the default one does not know how long an epoch is.
            begins_trained: whether another run trained the weights of step 0, so that they are worth evaluating.
        """
        self._queue, self._begins_trained = queue, begins_trained
        self._config = config
        self._world = world
        self._engine = engine
        self._updates = updates
        self._evaluator = evaluator
        self._saver = saver
        self._metrics = metrics
        self._records = records
        self._state = state
        self._activities = activities
        self._ledger = ledger
        self._stop_requested = stop_requested
        self._curriculum = Curriculum(config, state, updates=updates, saver=saver, metrics=metrics)
        self._forecast = forecast or Forecast(config, state)
        self._limits = Limits(config, state, self._forecast)
        self._was_time_up = self._limits.is_time_up()  # from the checkpoint, so the same on every rank
        self.end: str | None = None
        """The limits that ended it; None before, and if a stop was requested."""
        names = dataset_names(updates.reader.datasets)
        self._new_interval = functools.partial(Interval, tuple(names) if len(names) > 1 else (), Work(config, engine))
        self._interval = self._new_interval()
        self._recovery = Recovery(config, world, engine, saver=saver, metrics=metrics, records=records, state=state)
        self._global_flags = GlobalFlags()
        self._was_saving = False  # at the last exchange
        self._clock = time.monotonic()

    def fit(self) -> Literal["finished", "stopped"]:
        """Train. When this returns, the checkpoint of the last step is complete.

        Raises:
            TrainingError: the run cannot go on.
            Rewind: it can go on from the newest checkpoint if some updates are skipped.
            DataError: a shard is corrupt.
        """
        if self._world.sum([int(self._stop_requested())])[0]:
            return "stopped"  # nothing has begun, so nothing is touched
        if not self._evaluate_if_due():  # an evaluation that was interrupted
            return "stopped"
        last: Update | None = None
        while (update := self._next_update()) is not None:
            last = update
            self._train_on(update)
            if self._is_log_due(self._state.step):
                self._log(update)
            if self._queue is not None:
                self._queue.poll()
            stop = self._global_flags.stop_requested or not self._evaluate_if_due()
            if stop or self._global_flags.time_is_up:
                break
            self._save_if_due()
        else:
            stop = False
        if last is not None and self._interval.update_seconds:  # updates that no line has counted
            self._log(last)
        if not stop:
            stop = not self._evaluate()
        self._recovery.check_now()
        self._tick()
        self.end = None if stop else reasons(self._limits.reached(self._updates.epoch))
        self._saver.save_for_good(is_finished=not stop)
        if self._queue is not None and not stop:
            with self._activities("shutdown"):
                minutes = self._config.evaluation.queued_end_minutes
                self._queue.finish(seconds=60 * minutes, stop_requested=self._stop_requested)
        return "stopped" if stop else "finished"

    @property
    def state(self) -> TrainerState:
        """What it remembers."""
        return self._state

    def view(self) -> View:
        """The current progress, for a thread that displays it."""
        reader = self._updates.reader
        return View(
            step=self._state.step,
            last_step=self._limits.last_step,
            outlook=self._forecast.look(reader.epoch, reader.update - 1),
            activity=self._activities.current,
        )

    def early_ends(self) -> Iterator[str]:
        """What ends training before `training.max_updates`; see `Limits.early_ends`."""
        return self._limits.early_ends((self._updates.epoch, self._updates.reader.update))

    def _next_update(self) -> Update | None:
        """The next update, while the one after it is being fetched. None at the end of the run."""
        self._tick()
        while self._state.step < self._limits.last_step and not self._was_time_up:
            self._curriculum.go_on_if_due(settle=self._recovery.check_now)
            if self._limits.is_over(self._updates.epoch):
                return None
            with self._activities("data", step=self._state.step + 1):
                if not self._updates.has_next:  # at the start, and after a skipped update
                    self._begin_exchange(fetch=True)
                    self._finish_exchange()
                update = self._updates.take()
                if update is None:
                    continue
                if is_skipped(self._state.skipped_ranges, update.epoch, update.number):
                    self._recovery.note_skipped_range(update.epoch, update.number, update.counts)
                    continue
                self._begin_exchange(
                    fetch=self._state.step + 1 < self._limits.last_step and not self._curriculum.ends_with_next
                )
            return update
        return None

    def _begin_exchange(self, *, fetch: bool) -> None:
        """Fetch the next update, and begin the exchange with the other ranks. `_finish_exchange` completes it."""
        is_main, self._was_saving = self._world.is_main, self._saver.in_flight
        note = LocalFlags(
            stop_requested=self._stop_requested(),
            time_is_up=is_main and self._limits.is_time_up(),  # by the clock that is saved, or time would be left
            is_writing=self._saver.is_writing,
            milliseconds=round(1000 * self._state.seconds) if is_main else 0,
            loss_sum=self._recovery.pending_loss,
        )
        self._interval.waiting_seconds += self._updates.begin(note, step=self._state.step, fetch=fetch)

    def _finish_exchange(self) -> None:
        """Complete the exchange begun before this update, and commit a save that all ranks had written by then.

        Raises:
            Rewind: the loss of the update before was a spike.
        """
        self._global_flags = self._updates.read()
        if self._was_saving and not self._global_flags.is_writing:
            self._interval.pause(self._saver.commit())
        self._recovery.look_for_spike(self._global_flags.loss_sum)

    def _train_on(self, update: Update) -> None:
        """One optimizer step on the token-normalised loss of the whole update."""
        begin, state = time.monotonic(), self._state
        lr = self._limits.rate(update.seconds, update.seconds_step, (update.epoch, update.number))
        with self._activities("step", step=state.step + 1):
            try:
                lanes, on_device = self._accumulate(update)
                copy = HostCopy(on_device)
                sizes = UpdateSizes(self._engine) if self._is_log_due(state.step + 1) else None
                result = self._engine.step(lr)
                self._interval.sizes = sizes.compared() if sizes is not None and result.applied else None
            except (RuntimeError, MemoryError) as error:
                if not memory.is_out_of_memory(error):
                    raise
                raise TrainingError(memory.advice(error, self._config)) from error
            losses: Losses = dict(zip(lanes, copy.read().to(torch.float64), strict=True))
            mine = sum(losses.values(), torch.zeros(2, dtype=torch.float64))
            self._finish_exchange()
            if _is_due(state.step + 1, self._config.stability.hash_every_updates):
                problem = replicas.compare(self._world.gather(self._engine.replica_digest()))
                if problem is not None:
                    raise TrainingError(f"step {state.step + 1}: {problem}")
        state.step += 1
        state.target_tokens += update.counts.target_tokens
        self._interval.update_seconds.append(time.monotonic() - begin)
        self._interval.add_update(update.counts, lr, result.grad_norm, self._config.stream.micro_batches)
        self._interval.add_batches(update.micro_batches, losses if result.applied else {})
        self._records.write(state.step, update)
        self._recovery.watch(update, float(mine[0]), is_applied=result.applied)
        if result.applied:
            state.skipped_in_a_row = 0
            self._interval.add_losses(mine, update.counts.target_tokens)
        else:
            self._recovery.check_now()
            self._recovery.note_skip(update, result, losses)

    def _accumulate(self, update: Update) -> tuple[list[tuple[int, ...]], torch.Tensor]:
        """Forward and backward of this rank's micro-batches.

        Returns:
            Lanes of each pass that were not dry, and on the device (passes, 2) its sums of loss and likelihood.
        """
        device, engine = self._world.device, self._engine
        ahead = passes(update, engine, seed=self._config.seed)
        lanes, losses = [], []
        for number, one in enumerate(ahead, 1):
            self._activities.reach(self._state.step + 1, number, in_device=not is_host(device))
            seed(device, one.seed)
            scale = 1 / max(update.counts.target_tokens, 1) if one.lanes else 0.0
            out = engine.accumulate(one.batch, scale=scale, is_last=number == len(ahead))
            if one.lanes:
                lanes.append(one.lanes)
                losses += [out.loss_sum, out.nll_sum]
            self._interval.padded_tokens += sum(m.num_padded_source + m.num_padded_target for m in one.micro_batches)
        self._activities.reach(self._state.step + 1, len(ahead) + 1, in_device=not is_host(device))
        return lanes, torch.stack(losses).view(-1, 2) if losses else torch.zeros(0, 2, device=device)

    def _log(self, update: Update) -> None:
        """The figures of the updates since the last line; `update` is the newest."""
        state = self._state
        self._tick()
        figures = self._interval.figures(self._world)
        figures |= {
            "epoch": update.epoch,
            "update": update.number,
            **state.phase_figures(),
            "skipped_updates": state.skipped_updates,
            "corrupt_blocks": self._world.sum([self._updates.num_corrupt_blocks])[0],
            "rewinds": len(state.skipped_ranges),
            TARGET_TOKENS: state.target_tokens,
            "total_seconds": round(state.seconds, 3),
            **self._limits.figures(),
        }
        ranks, slow = self._interval.figures_of_ranks(self._world, self._engine.take_forward_seconds())
        figures |= ranks
        if slow is not None:
            log.warning("step %d: %s", state.step, slow)
        if self._ledger is not None:
            figures |= self._ledger.figures() | machine_figures(self._world.device)
            self._ledger.write()
            with contextlib.suppress(OSError):  # a full disk
                write_status(Path(self._config.folder), "running", exit_code=1, step=state.step)
        self._metrics.train(state.step, figures)
        if (warning := self._limits.clock_warning((update.epoch, update.number + 1))) is not None:
            log.warning("%s", warning)
        log_step(state.step, update.epoch, figures, self._forecast.look(update.epoch, update.number))
        self._interval = self._new_interval()

    def _is_log_due(self, step: int) -> bool:
        return step % self._config.training.log_every == 0 or step == self._limits.last_step

    def _evaluate_if_due(self) -> bool:
        """False if a stop was requested meanwhile. Weights from before the series of scores are not part of it."""
        step = self._state.step
        is_own = step != self._state.series_start or self._begins_trained
        is_due = _is_due(step, self._config.evaluation.every_updates) and is_own
        return not is_due or self._evaluate()

    def _evaluate(self) -> bool:
        """Score this step's weights, once; False if a stop was requested before it was done."""
        step = self._state.step
        known = [self._state.scores_of(figure) or {} for figure in self._config.evaluation.at_once]
        is_new = step == 0 and not self._begins_trained
        if any(step in scores for scores in known) or is_new or not self._evaluator.has_sets:
            return True
        self._recovery.check_now()
        pause = time.monotonic()
        with self._activities("evaluation", step=step):
            try:
                evaluation = self._evaluator.evaluate(self._engine, step)
            except (RuntimeError, MemoryError) as error:
                if not memory.is_out_of_memory(error):
                    raise
                raise TrainingError(memory.evaluation_advice(error, self._config)) from error
        self._interval.pause(time.monotonic() - pause)
        if evaluation is None:
            log.info("step %d: asked to stop, the evaluation is left for the next start", step)
            return False
        figures = evaluation.figures()
        self._recovery.note_evaluation(step, evaluation, figures)
        if self._queue is not None:
            self._queue.add(step, evaluation)
        shown = self._config.evaluation
        figures |= {"series": self._state.series and self._state.series.id, TARGET_TOKENS: self._state.target_tokens}
        figures |= self._state.phase_figures()
        samples = evaluation.samples(shown.samples, step // max(shown.every_updates, 1))
        self._metrics.evaluation(step, figures, samples, evaluation.attentions[: 2 * shown.attention_maps])
        log_evaluation(step, evaluation, self._config, self._state)
        return True

    def _save_if_due(self) -> None:
        if self._saver.is_overdue or _is_due(self._state.step, self._config.checkpoint.every_updates):
            self._recovery.check_now()
            self._tick()
            self._interval.pause(self._saver.begin())

    def _tick(self) -> None:
        """Add the time since the last tick to the run's time."""
        now = time.monotonic()
        self._state.seconds += now - self._clock
        self._clock = now


def _is_due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0
