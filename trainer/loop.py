"""The training loop: next update, train on it, log, evaluate, save, stop if asked."""

import contextlib
import functools
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from configs import UserError
from trainer.checkpoint.state import TrainerState
from trainer.context import RunContext
from trainer.curriculum import Curriculum
from trainer.datasets import dataset_names
from trainer.engines import replicas
from trainer.engines.batches import Losses, Update
from trainer.engines.host_copy import HostCopy
from trainer.engines.layouts import LayoutThread, passes
from trainer.engines.protocol import StepResult
from trainer.engines.update_sizes import UpdateSizes
from trainer.evaluation.best import last_and_best
from trainer.evaluation.evaluator import Evaluator
from trainer.limits import Limits, reasons
from trainer.lookahead import GlobalFlags, LocalFlags
from trainer.ranks.device import is_host, seed
from trainer.records.interval import Interval
from trainer.records.names import TARGET_TOKENS
from trainer.records.utilization import Work, machine_figures
from trainer.runs.failure import TrainingError
from trainer.runs.status import Progress, write_status
from trainer.saving import Saver
from trainer.stability import memory
from trainer.stability.recovery import Recovery
from trainer.stability.rewind import is_skipped
from trainer.terminal.bar import View
from trainer.terminal.forecast import Forecast
from trainer.terminal.steps import log_evaluation, log_step

log = logging.getLogger(__name__)


@dataclass(kw_only=True, slots=True, frozen=True)
class _Made:
    """An update that the device has been given, and whose outcome is read when it has more to do."""

    update: Update
    step: int
    """Its number."""
    lr: float
    result: StepResult
    lanes: list[tuple[int, ...]]
    """Of each pass that was not dry."""
    sums: HostCopy
    """(passes, 2): sums of loss and likelihood of these passes."""

    def losses(self) -> Losses:
        """Of this rank's lanes."""
        return dict(zip(self.lanes, self.sums.read().to(torch.float64), strict=True))


class Trainer:
    """Trains until a limit is reached or someone asks to stop."""

    def __init__(
        self,
        run: RunContext,
        *,
        evaluator: Evaluator,
        saver: Saver,
        forecast: Forecast | None = None,
        begins_trained: bool = False,
        retrain: Callable[[], None] = lambda: None,
    ) -> None:
        """Assemble the parts.

        Args:
            forecast: predicts the end; the default one does not know how long an epoch is.
            begins_trained: whether another run trained the weights of step 0, so that they are worth evaluating.
            retrain: see `Curriculum`.
        """
        self._run = run
        self._evaluator = evaluator
        self._saver = saver
        self._begins_trained = begins_trained
        self._curriculum = Curriculum(run, saver, retrain)
        self._forecast = forecast or Forecast(run.config, run.state)
        self._limits = Limits(run.config, run.state, self._forecast)
        self._was_time_up = self._limits.is_time_up()  # from the checkpoint, so the same on every rank
        self.end: str | None = None
        """The limits that ended it; None before, and if a stop was requested."""
        self._layouts = LayoutThread(run.engine, run.config.seed)
        run.updates.lay_out = self._layouts.begin
        names = dataset_names(run.updates.reader.datasets)
        work = Work(run.config, run.engine)
        weighed_by = run.config.training.normalize_by if run.config.weighs_pairs else None
        of_mixture = tuple(names) if len(names) > 1 else ()
        self._new_interval = functools.partial(Interval, of_mixture, work, weighed_by)
        self._interval = self._new_interval()
        self._logged: dict[str, float] = {}
        """What `Progress` has of the last log line."""
        self._recovery = Recovery(run, saver)
        self._made: _Made | None = None
        """The newest update, until it is recorded: while the next one is made, or by `_settle`."""
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
        if self._run.world.sum([int(self._run.stop_requested())])[0]:
            return "stopped"  # nothing has begun, so nothing is touched
        if not self._evaluate_if_due():  # an evaluation that was interrupted
            return "stopped"
        last: Update | None = None
        while (update := self._next_update()) is not None:
            last = update
            self._train_on(update)
            if self._is_log_due(self._run.state.step):
                self._log(update)
            if self._run.queue is not None:
                self._run.queue.poll()
            stop = self._global_flags.stop_requested or not self._evaluate_if_due()
            if stop or self._global_flags.time_is_up:
                break
            self._save_if_due()
        else:
            stop = self._global_flags.stop_requested
        if last is not None and self._interval.update_seconds:  # updates that no line has counted
            self._log(last)
        if not stop:
            if not _is_due(self._run.state.step, self._run.config.evaluation.every_updates):
                self._run.state.unplanned.append(self._run.state.step)
            stop = not self._evaluate()
        self._check_now()
        self._tick()
        self.end = None if stop else reasons(self._limits.reached(self._run.updates.epoch))
        self._saver.save_for_good(is_finished=not stop)
        if self._run.queue is not None and not stop:
            with self._run.activities("shutdown"):
                minutes = self._run.config.evaluation.queued_end_minutes
                self._run.queue.finish(seconds=60 * minutes, stop_requested=self._run.stop_requested)
        self._tell()
        return "stopped" if stop else "finished"

    def close(self) -> None:
        """End its thread."""
        self._layouts.close()

    @property
    def state(self) -> TrainerState:
        """What it remembers."""
        return self._run.state

    def view(self) -> View:
        """The current progress, for a thread that displays it."""
        reader = self._run.updates.reader
        return View(
            step=self._run.state.step,
            last_step=self._limits.last_step,
            outlook=self._forecast.look(reader.epoch, reader.update - 1),
            activity=self._run.activities.current,
        )

    def early_ends(self) -> Iterator[str]:
        """What ends training before `training.max_updates`; see `Limits.early_ends`."""
        return self._limits.early_ends((self._run.updates.epoch, self._run.updates.reader.update))

    def _next_update(self) -> Update | None:
        """The next update, while the one after it is being fetched. None at the end of the run, and if it is to stop.

        Raises:
            UserError: a whole pass over the data had no update to train on.
        """
        passes = 0  # epochs that ended since the last update; the first may have begun before this start
        while self._run.state.step < self._limits.last_step and not self._was_time_up:
            self._tick()
            self._curriculum.go_on_if_due(settle=self._check_now)
            if self._limits.is_over(self._run.updates.epoch) or self._global_flags.ends:
                return None
            if passes > 1:
                raise UserError(
                    "stream: a whole pass over the data has nothing to train on: all pairs are left out, or have "
                    "weight 0; look at stream.source_tokens, target_tokens and on_oversized_pair, and at loss_weight"
                )
            with self._run.activities("data", step=self._run.state.step + 1):
                if not self._run.updates.has_next:  # at the start, and after a skipped update
                    self._begin_exchange(fetch=True)
                    self._finish_exchange()
                update = self._run.updates.take()
                if update is None:
                    passes += 1
                    continue
                if is_skipped(self._run.state.skipped_ranges, update.epoch, update.number):
                    self._settle()
                    self._recovery.note_skipped_range(update.epoch, update.number, update.counts)
                    passes = 0  # what is skipped could have been trained on
                    continue
                if not update.counts.has_weight:
                    self._settle()
                    self._recovery.note_weightless(update.epoch, update.number, update.counts)
                    continue
                self._begin_exchange(
                    fetch=self._run.state.step + 1 < self._limits.last_step and not self._curriculum.ends_with_next
                )
            return update
        return None

    def _begin_exchange(self, *, fetch: bool) -> None:
        """Fetch the next update, and begin the exchange with the other ranks. `_finish_exchange` completes it."""
        is_main, self._was_saving = self._run.world.is_main, self._saver.in_flight
        note = LocalFlags(
            stop_requested=self._run.stop_requested(),
            time_is_up=is_main and self._limits.is_time_up(),  # by the clock that is saved, or time would be left
            is_writing=self._saver.is_writing,
            milliseconds=round(1000 * self._run.state.seconds) if is_main else 0,
            loss_sums=self._recovery.tell(),
        )
        self._interval.waiting_seconds += self._run.updates.begin(note, step=self._run.state.step, fetch=fetch)

    def _finish_exchange(self) -> None:
        """Complete the exchange begun before this update, and commit a save that all ranks had written by then.

        Raises:
            Rewind: a loss that was told of was a spike.
        """
        self._global_flags = self._run.updates.read()
        if self._was_saving and not self._global_flags.is_writing:
            self._interval.pause(self._saver.commit())
        self._recovery.look_for_spikes(self._global_flags.loss_sums)

    def _train_on(self, update: Update) -> None:
        """One optimizer step on the token-normalised loss of the whole update."""
        begin, state = time.monotonic(), self._run.state
        with self._run.activities("step", step=state.step + 1):
            try:
                lanes, on_device = self._accumulate(update)
                sums, last = HostCopy(on_device), self._made
                self._note_outcome(last)  # the rate follows the updates that were applied
                lr = self._limits.rate(
                    update.seconds,
                    update.seconds_step,
                    (update.epoch, update.number),
                    target_tokens=update.counts.target_tokens,
                )
                sizes = UpdateSizes(self._run.engine) if self._is_log_due(state.step + 1) else None
                result = self._run.engine.step(lr)
                self._interval.sizes = sizes.compared() if sizes is not None and result.applied else None
            except (RuntimeError, MemoryError) as error:
                if not memory.is_out_of_memory(error):
                    raise
                raise TrainingError(memory.advice(error, self._run.config)) from error
            self._made = None
            self._finish_exchange()
            if last is not None:
                self._record(last)
            if _is_due(state.step + 1, self._run.config.stability.hash_every_updates):
                problem = replicas.compare(self._run.world.gather(self._run.engine.replica_digest()))
                if problem is not None:
                    raise TrainingError(f"step {state.step + 1}: {problem}")
        state.step += 1
        state.target_tokens += update.counts.target_tokens
        state.lr = lr
        self._interval.update_seconds.append(time.monotonic() - begin)
        self._run.pairs.write(state.step, update.micro_batches)
        self._made = _Made(update=update, step=state.step, lr=lr, result=result, lanes=lanes, sums=sums)

    def _note_outcome(self, made: _Made | None) -> None:
        """Count an update as applied or skipped; wait for the device if it has not made it yet."""
        if made is not None:
            tokens = made.update.counts.target_tokens
            self._run.state.note_outcome(applied=made.result.applied, target_tokens=tokens)

    def _record(self, made: _Made) -> None:
        """Record an update that is counted."""
        update, result, losses = made.update, made.result, made.losses()
        mine = sum(losses.values(), torch.zeros(2, dtype=torch.float64))
        self._interval.add_update(update.counts, made.lr, result.grad_norm, self._run.config.stream.micro_batches)
        self._interval.add_batches(update.micro_batches, losses if result.applied else {})
        self._recovery.watch(update, float(mine[0]), step=made.step, is_applied=result.applied)
        if result.applied:
            self._interval.add_losses(mine, update.counts)
        else:
            self._recovery.check_now()
            self._recovery.note_skip(update, result, losses, step=made.step)

    def _settle(self) -> None:
        """Count and record the newest update now: before anything is made of what the run has done so far.

        Raises:
            Rewind: it was one too many in a row that were skipped.
        """
        made, self._made = self._made, None
        if made is not None:
            self._note_outcome(made)
            self._record(made)

    def _check_now(self) -> None:
        """Settle the newest update, and look at its loss, too.

        Raises:
            Rewind: it was a spike, or see `_settle`.
        """
        self._settle()
        self._recovery.check_now()

    def _accumulate(self, update: Update) -> tuple[list[tuple[int, ...]], torch.Tensor]:
        """Forward and backward of this rank's micro-batches.

        Returns:
            Lanes of each pass that were not dry, and on the device its sums, as `_Made.sums`.
        """
        device, engine = self._run.world.device, self._run.engine
        ahead = passes(update, engine, seed=self._run.config.seed)
        lanes, losses = [], []
        divisor = update.counts.divisor(self._run.config.training.normalize_by)
        for number, one in enumerate(ahead, 1):
            self._run.activities.reach(self._run.state.step + 1, number, in_device=not is_host(device))
            seed(device, one.seed)
            scale = 1 / divisor if one.lanes else 0.0
            out = engine.accumulate(one.batch, scale=scale, is_last=number == len(ahead))
            if one.lanes:
                lanes.append(one.lanes)
                losses += [out.loss_sum, out.nll_sum]
            self._interval.padded_tokens += sum(m.num_padded_source + m.num_padded_target for m in one.micro_batches)
        self._run.activities.reach(self._run.state.step + 1, len(ahead) + 1, in_device=not is_host(device))
        return lanes, torch.stack(losses).view(len(lanes), -1) if losses else torch.zeros(0, 2, device=device)

    def _log(self, update: Update) -> None:
        """The figures of the updates since the last line; `update` is the newest."""
        self._settle()
        state = self._run.state
        self._tick()
        figures = self._interval.figures(self._run.world)
        figures |= {
            "epoch": update.epoch,
            "update": update.number,
            **state.phase_figures(),
            "skipped_updates": state.skipped_updates,
            "corrupt_blocks": self._run.world.sum([self._run.updates.num_corrupt_blocks])[0],
            "rewinds": len(state.skipped_ranges),
            TARGET_TOKENS: state.target_tokens,
            "total_seconds": round(state.seconds, 3),
            **self._limits.figures(),
        }
        ranks, slow = self._interval.figures_of_ranks(self._run.world, self._run.engine.take_forward_seconds())
        figures |= ranks
        if slow is not None:
            log.warning("step %d: %s", state.step, slow)
        if (ledger := self._run.activities.ledger) is not None:
            figures |= ledger.figures() | machine_figures(self._run.world.device)
            ledger.write()
        self._logged = {"train_loss": figures["loss"], "target_tokens_per_second": figures["tokens_per_second"]}
        self._tell()
        self._run.metrics.train(state.step, figures)
        if (warning := self._limits.clock_warning((update.epoch, update.number + 1))) is not None:
            log.warning("%s", warning)
        log_step(state.step, update.epoch, figures, self._forecast.look(update.epoch, update.number))
        self._interval = self._new_interval()

    def _tell(self) -> None:
        """Write into status.json what `zeromt status` shows, if this is rank 0."""
        if not self._run.world.is_main:
            return
        config, state, outlook = self._run.config, self._run.state, self.view().outlook
        last, best = last_and_best(config, state)
        progress = Progress(
            share=outlook.share,
            fraction=outlook.fraction,
            seconds_left=outlook.seconds_left,
            updates_per_second=1 / outlook.seconds_per_update if outlook.seconds_per_update else None,
            phase=state.phase.name if state.phase is not None else None,
            last_score=last,
            best_score=best,
            **self._logged,
        )
        with contextlib.suppress(OSError):  # a full disk
            write_status(Path(config.folder), "running", step=state.step, progress=progress)

    def _is_log_due(self, step: int) -> bool:
        return step % self._run.config.training.log_every == 0 or step == self._limits.last_step

    def _evaluate_if_due(self) -> bool:
        """False if a stop was requested meanwhile. Weights from before the series of scores are not part of it."""
        step = self._run.state.step
        is_own = step != self._run.state.series_start or self._begins_trained
        return not (is_own and _is_due(step, self._run.config.evaluation.every_updates)) or self._evaluate()

    def _evaluate(self) -> bool:
        """Score this step's weights, once; False if a stop was requested before it was done."""
        config, state = self._run.config, self._run.state
        step, known = state.step, [state.scores.get(figure, {}) for figure in config.evaluation.at_once]
        is_new = step == 0 and not self._begins_trained
        if any(step in scores for scores in known) or is_new or not self._evaluator.has_sets:
            return True
        self._check_now()
        pause = time.monotonic()
        with self._run.activities("evaluation", step=step):
            try:
                evaluation = self._evaluator.evaluate(self._run.engine, step)
            except (RuntimeError, MemoryError) as error:
                if not memory.is_out_of_memory(error):
                    raise
                raise TrainingError(memory.evaluation_advice(error, config)) from error
        self._interval.pause(time.monotonic() - pause)
        if evaluation is None:
            log.info("step %d: asked to stop, the evaluation is left for the next start", step)
            return False
        figures = evaluation.figures()
        self._recovery.note_evaluation(step, evaluation, figures)
        if self._run.queue is not None:
            self._run.queue.add(step, evaluation)
        shown = config.evaluation
        figures |= {"series": state.measured.get(state.best_by), TARGET_TOKENS: state.target_tokens}
        figures |= state.phase_figures()
        samples = evaluation.samples(shown.samples, step // max(shown.every_updates, 1))
        self._run.metrics.evaluation(step, figures, samples, evaluation.attentions[: 2 * shown.attention_maps])
        log_evaluation(step, evaluation, config, state)
        self._tell()
        return True

    def _save_if_due(self) -> None:
        """Save, but not the last step: that is evaluated first, and its checkpoint has the scores."""
        step = self._run.state.step
        is_due = self._saver.is_overdue or _is_due(step, self._run.config.checkpoint.every_updates)
        if is_due and step < self._limits.last_step:
            self._check_now()
            self._tick()
            self._interval.pause(self._saver.begin())
            self._tell()

    def _tick(self) -> None:
        """Add the time since the last tick to the run's time."""
        now = time.monotonic()
        self._run.state.seconds += now - self._clock
        self._clock = now


def _is_due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0
