"""The training loop: next update, train on it, log, evaluate, save, stop if asked.

The device is always one update behind: what became of an update is read once the device has the next one's passes to
compute (`Trainer._settle`), or where it matters at once: before a line, an evaluation, a save, a phase and the end.
"""

import contextlib
import functools
import logging
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from configs import UserError
from trainer.checkpoint.save import Saver
from trainer.context import RunContext
from trainer.datasets import dataset_names
from trainer.engines.batches import HostCopy, Losses, StepResult, Update
from trainer.evaluation.evaluator import Evaluator
from trainer.evaluation.scores import last_and_best
from trainer.limits import Limits, Outlook
from trainer.lookahead import Flags, Layouts
from trainer.phases import begin_next, next_is_due
from trainer.ranks.device import seed
from trainer.records.interval import Interval, Work, machine_figures
from trainer.records.names import TARGET_TOKENS
from trainer.runs.failure import TrainingError
from trainer.runs.status import Progress, write_status
from trainer.spikes import go_back, is_skipped, note_left_out, note_skip, spike
from trainer.stability import memory
from trainer.terminal import log_evaluation, log_step

log = logging.getLogger(__name__)


@dataclass(kw_only=True, slots=True, frozen=True)
class _Made:
    """An update that the device has been given."""

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
        updates_an_epoch: float | None = None,
        begins_trained: bool = False,
    ) -> None:
        """Assemble the parts.

        Args:
            run: of this rank.
            evaluator: of the run.
            saver: of the run.
            updates_an_epoch: see `Limits`.
            begins_trained: whether another run trained the weights of step 0, so that they are worth evaluating.
        """
        self.run, self.evaluator, self.saver = run, evaluator, saver
        self.resumed_step = run.state.step
        """Updates done before this start."""
        self._begins_trained = begins_trained
        self._limits = Limits(run.config, run.state, updates_an_epoch=updates_an_epoch)
        self.end: str | None = None
        """The limits that ended it; None before, and if a stop was requested."""
        self._layouts = Layouts(run.engine, run.config.seed)
        names = dataset_names(run.updates.reader.datasets)
        work = Work(run.config, run.engine)
        lanes, names_shown = run.config.stream.micro_batches, tuple(names) if len(names) > 1 else ()
        self._new_interval = functools.partial(Interval, lanes, names_shown, work, weighs=run.config.weighs_pairs)
        self._interval = self._new_interval()
        self._logged: dict[str, float] = {}
        """What `Progress` has of the last log line."""
        self._previous: _Made | None = None
        """The newest update, until `_settle` reads what became of it."""
        self._settled: list[tuple[_Made, float]] = []
        """Those whose losses are not summed over the ranks yet, oldest first, with this rank's part."""
        # from the checkpoint, so the same on every rank
        self._flags = Flags(time_is_up=self._limits.is_time_up())
        self._clock = time.monotonic()

    def fit(self) -> Literal["finished", "stopped"]:
        """Train. When this returns, a checkpoint of what this start has done is complete.

        It is of the last step, or, if that one's loss is not finite and a stop was requested, of one before it.

        Raises:
            TrainingError: the run cannot continue.
            Rewind: it can resume from the newest checkpoint if some updates are skipped.
            DataError: a shard is corrupt.
        """
        run, state = self.run, self.run.state
        if run.world.sum([int(run.stop_requested())])[0]:
            return "stopped"  # nothing has begun, so nothing is touched
        if not self._evaluate_if_due():  # an evaluation that was interrupted
            return "stopped"
        update = None
        for update in self._updates():
            self._train_on(update)
            if self._is_log_due(state.step):
                self._log(update)
            if run.queue is not None:
                run.queue.poll()
            if self._flags.stop_requested or not self._evaluate_if_due():
                return self._end(update, is_stopped=True)
            self._save_if_due()
        return self._end(update, is_stopped=self._flags.stop_requested)

    def _end(self, last: Update | None, *, is_stopped: bool) -> Literal["finished", "stopped"]:
        """Evaluate if that is due and no stop was requested, and save; `last` is the newest update."""
        run, state = self.run, self.run.state
        if last is not None and not self._is_log_due(state.step):  # updates that no line has counted
            self._log(last)
        if not is_stopped:
            if not _is_due(state.step, run.config.evaluation.every_updates):
                state.unplanned.append(state.step)
            is_stopped = not self._evaluate()
        self._settle_all()
        self._tick()
        if not is_stopped:
            self.end = "; ".join(limit.reason for limit in self._limits.reached(run.updates.epoch)) or None
        self.saver.save_for_good(is_finished=not is_stopped)
        if run.queue is not None and not is_stopped:
            with run.activities("shutdown"):
                minutes = run.config.evaluation.queued_end_minutes
                run.queue.finish(seconds=60 * minutes, stop_requested=run.stop_requested)
        self._write_status()
        return "stopped" if is_stopped else "finished"

    def close(self, outcome: str = "finished", reason: str | None = None) -> None:
        """Write out and close everything that is still open; arguments as of `Metrics.close`."""
        self._layouts.close()
        self.run.updates.reader.close()
        self.run.engine.close()
        if self.run.queue is not None:
            self.run.queue.close()
        self.run.metrics.close(outcome, reason)

    def view(self) -> tuple[str | None, Outlook]:
        """What it does now, if anything, and how far it has come, for a thread that displays it."""
        place = self.run.updates.state()
        return self.run.activities.current, self._limits.look(place.epoch, place.update - 1)

    def _updates(self) -> Iterator[Update]:
        """The updates to train on, each while the one after it is being fetched, up to a limit or a stop.

        Raises:
            UserError: a whole pass over the data had no update to train on.
        """
        run, state = self.run, self.run.state
        ended = 0  # epochs since the last update; the first may have begun before this start
        while state.step < self._limits.last_step and not self._flags.stop_requested and not self._flags.time_is_up:
            self._tick()
            if (why := next_is_due(run.config, state, run.updates.epoch)) is not None:
                self._settle_all()
                begin_next(run, why)
                self.saver.note_position()
            if self._limits.is_over(run.updates.epoch):
                return
            if ended > 1:
                raise UserError(
                    "stream: a whole pass over the data has nothing to train on: all pairs are left out, or have "
                    "weight 0; look at stream.source_tokens, target_tokens and on_oversized_pair, and at loss_weight"
                )
            with run.activities("data", step=state.step + 1):
                if run.updates.fetched is None:  # at the start, and after one that was left out
                    self._begin_exchange(fetch=True)
                    self._finish_exchange()
                update = run.updates.take()
                if update is None:
                    ended += 1
                    continue
                if is_skipped(state.skipped_ranges, update.epoch, update.number):
                    note_left_out(run, update, "it is near one after which the run was rewound")
                    ended = 0
                    continue
                if not update.counts.has_weight:
                    note_left_out(run, update, "all of its pairs have weight 0")
                    continue
                self._begin_exchange(fetch=state.step + 1 < self._limits.last_step)
            yield update
            ended = 0

    def _begin_exchange(self, *, fetch: bool) -> None:
        """Fetch the next update, and begin the exchange with the other ranks. `_finish_exchange` completes it."""
        run = self.run
        flags = Flags(
            stop_requested=run.stop_requested(),
            time_is_up=run.world.is_main and self._limits.is_time_up(),  # by the clock that is saved
            is_writing=self.saver.is_writing,
            milliseconds=round(1000 * run.state.seconds) if run.world.is_main else 0,
            loss_sums=[loss_sum for _, loss_sum in self._settled],
        )
        self._interval.waiting_seconds += run.updates.begin(flags, step=run.state.step, fetch=fetch)
        if (update := run.updates.fetched) is not None:
            self._layouts.begin(update)

    def _finish_exchange(self) -> None:
        """Complete the exchange begun before this update, and commit a save that all ranks had written by then.

        Raises:
            Rewind: a loss that was told of was a spike.
        """
        self._flags = self.run.updates.read()
        if self.saver.in_flight and not self._flags.is_writing:
            self._interval.pause(self.saver.commit())
        self._look_at(self._flags.loss_sums)

    def _train_on(self, update: Update) -> None:
        """One optimizer step on the token-normalised loss of the whole update.

        Raises:
            Rewind: an update before it was a spike, or the last of too many that were skipped.
        """
        run, state = self.run, self.run.state
        with run.activities("step", step=state.step + 1), memory.advised(run.config, "stream", TrainingError):
            lanes, on_device = self._accumulate(update)
            sums = HostCopy(on_device)
            self._finish_exchange()
            self._settle()  # the rate follows the updates that were applied
            lr = self._limits.rate(update.seconds, update.seconds_step)
            result = run.engine.step(lr)
        state.step += 1
        state.target_tokens += update.counts.target_tokens
        state.lr = lr
        self._previous = _Made(update=update, step=state.step, lr=lr, result=result, lanes=lanes, sums=sums)

    def _accumulate(self, update: Update) -> tuple[list[tuple[int, ...]], torch.Tensor]:
        """Forward and backward of this rank's micro-batches.

        Returns:
            Lanes of each pass that were not dry, and on the device its sums, as `_Made.sums`.
        """
        device, ahead = self.run.world.device, self._layouts.passes(update)
        lanes, losses = [], []
        for number, one in enumerate(ahead, 1):
            seed(device, one.seed)
            scale = 1 / update.counts.divisor if one.lanes else 0.0
            out = self.run.engine.accumulate(one.send(), scale=scale, is_last=number == len(ahead))
            if one.lanes:
                lanes.append(one.lanes)
                losses += [out.loss_sum, out.nll_sum]
        return lanes, torch.stack(losses).view(len(lanes), -1) if losses else torch.zeros(0, 2, device=device)

    def _settle(self) -> None:
        """Read what became of the newest update, and record it; waits for the device if it has not made it yet.

        Raises:
            Rewind: it was one too many in a row that were skipped.
        """
        made, self._previous = self._previous, None
        if made is None:
            return
        run, state, update = self.run, self.run.state, made.update
        is_applied, losses = made.result.applied, made.losses()
        state.note_outcome(applied=is_applied)
        applied = losses if is_applied else None
        self._interval.add(update, applied, lr=made.lr, grad_norm=made.result.grad_norm)
        self._settled.append((made, sum(float(loss_sum) for loss_sum, _ in losses.values())))
        if is_applied:
            return
        note_skip(run, update, made.result, losses, step=made.step)
        most = run.config.training.max_skipped_in_a_row
        if state.skipped_in_a_row >= most:
            reason = f"{most} updates in a row had a gradient that is not finite"
            go_back(run, self.saver, update, most, reason, step=made.step)

    def _settle_all(self) -> None:
        """Settle the newest update, and look at all losses: before anything is made of what the run has done so far.

        Raises:
            Rewind: see `_settle` and `_look_at`.
        """
        self._settle()
        if self._settled:
            self._look_at(self.run.world.begin_sums([], [loss_sum for _, loss_sum in self._settled])()[1])

    def _look_at(self, loss_sums: Sequence[float]) -> None:
        """Record the oldest losses, now that they are summed over the ranks.

        Raises:
            Rewind: one is a spike.
        """
        section = self.run.config.stability
        for loss_sum in loss_sums:
            made, _ = self._settled.pop(0)
            loss = loss_sum / made.update.counts.divisor
            self.saver.newest_loss = loss
            why = spike(loss, self.run.state.recent_losses, section) if made.result.applied else None
            if why is not None:
                go_back(self.run, self.saver, made.update, section.skip_updates, why, step=made.step)

    def _log(self, update: Update) -> None:
        """The figures of the updates since the last line; `update` is the newest."""
        self._settle()
        state = self.run.state
        self._tick()
        figures = self._interval.figures(self.run.world)
        figures |= {
            "epoch": update.epoch,
            "update": update.number,
            **state.phase_figures(),
            "skipped_updates": state.skipped_updates,
            "rewinds": len(state.skipped_ranges),
            TARGET_TOKENS: state.target_tokens,
            "total_seconds": round(state.seconds, 3),
        }
        if (ledger := self.run.activities.ledger) is not None:
            figures |= ledger.figures() | machine_figures(self.run.world.device)
            ledger.write()
        self._logged = {"train_loss": figures["loss"], "target_tokens_per_second": figures["tokens_per_second"]}
        self._write_status()
        self.run.metrics.train(state.step, figures)
        log_step(state.step, update.epoch, figures, self._limits.look(update.epoch, update.number))
        self._interval = self._new_interval()

    def _write_status(self) -> None:
        """Write into status.json what `zeromt status` shows, if this is rank 0."""
        if not self.run.world.is_main:
            return
        config, state, (_, outlook) = self.run.config, self.run.state, self.view()
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
        return step % self.run.config.training.log_every == 0 or step == self._limits.last_step

    def _evaluate_if_due(self) -> bool:
        """False if a stop was requested meanwhile. Weights from before the series of scores do not belong to it."""
        step = self.run.state.step
        is_own = step != self.run.state.series_start or self._begins_trained
        return not (is_own and _is_due(step, self.run.config.evaluation.every_updates)) or self._evaluate()

    def _evaluate(self) -> bool:
        """Score this step's weights, once; False if a stop was requested before it was done."""
        config, state = self.run.config, self.run.state
        step, is_new = state.step, state.step == 0 and not self._begins_trained
        if state.is_scored or is_new or not self.evaluator.held_out:
            return True
        self._settle_all()
        pause = time.monotonic()
        with self.run.activities("evaluation", step=step), memory.advised(config, "evaluation", TrainingError):
            evaluation = self.evaluator.evaluate(self.run.engine, step)
        self._interval.pause(time.monotonic() - pause)
        if evaluation is None:
            log.info("step %d: asked to stop, the evaluation is left for the next start", step)
            return False
        figures = evaluation.figures()
        state.note(step, figures)
        if wrong := {k: x for k, x in figures.items() if k.split("/")[0] == "loss" and not math.isfinite(x)}:
            self.run.metrics.event(step, {"event": "loss_not_finite", "figures": list(wrong)})
            log.warning("step %d: the validation loss is not finite: %s", step, ", ".join(wrong))
        if self.run.queue is not None:
            self.run.queue.add(step, evaluation)
        figures |= {"series": state.measured.get(state.best_by), TARGET_TOKENS: state.target_tokens}
        figures |= state.phase_figures()
        self.run.metrics.evaluation(step, figures, evaluation.samples(config.evaluation.samples))
        log_evaluation(step, evaluation, config, state)
        self._write_status()
        return True

    def _save_if_due(self) -> None:
        """Save, but not the last step: that is evaluated first, and its checkpoint has the scores."""
        step = self.run.state.step
        is_due = self.saver.is_overdue or _is_due(step, self.run.config.checkpoint.every_updates)
        if is_due and step < self._limits.last_step and not self._flags.time_is_up:
            self._settle_all()
            self._tick()
            self._interval.pause(self.saver.begin())
            self._write_status()

    def _tick(self) -> None:
        """Add the time since the last tick to the run's time."""
        now = time.monotonic()
        self.run.state.seconds += now - self._clock
        self._clock = now


def _is_due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0
