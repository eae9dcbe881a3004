"""When a run is saved, what a checkpoint contains besides the weights, and what is logged about it."""

import logging
import math
import time
from pathlib import Path
from typing import Any

import torch

from configs import UserError
from data_pipeline.order.state import LaneCursor, StreamState
from trainer.checkpoint.manager import CheckpointManager
from trainer.context import RunContext
from trainer.runs.failure import TrainingError
from trainer.runs.history import History

log = logging.getLogger(__name__)

RETRY_SECONDS = 5.0


class Saver:
    """Saves a run's state, stream and engine; all ranks make the same calls. Training goes on after a failed save."""

    def __init__(self, run: RunContext, checkpoints: CheckpointManager, *, has_own: bool = True) -> None:
        """Record in the run's history what it is started with, and where its data stand; as all calls, by all ranks.

        Args:
            run: the run.
            checkpoints: its own.
            has_own: whether it resumes from one of them, and not from another run's.
        """
        self._run = run
        self._checkpoints = checkpoints
        self._history = self._opened_history()
        self.newest_loss = 0.0
        """Of the newest update, applied or skipped, by the weights before it; the same on all ranks."""
        self.is_overdue = False
        """Whether the newest save was left out, because of weights that are not good; the same on all ranks."""
        self.saved_step = (run.state.step or None) if has_own else None
        """The newest step that was saved or is being saved; None if there is none."""
        self._has_scores = run.state.is_scored  # whether the checkpoint of that step has its scores

    def _opened_history(self) -> History | None:
        """The run's history with an entry of this start; rank 0 writes it."""
        state, stream = self._run.state, self._whole_stream()
        if not self._run.world.is_main:
            return None
        history = History(Path(self._run.config.folder), resume_step=state.step)
        history.start(state.step, stream, state.skipped_ranges, self._checkpoints.identity.config_yaml)
        return history

    def _whole_stream(self) -> dict[str, Any]:
        """The position of all lanes in the data, from those of every rank's."""
        mine = self._run.updates.state()
        return StreamState.merge(self._run.world.gather(mine, StreamState, LaneCursor)).to_json()

    @property
    def is_writing(self) -> bool:
        """Whether this rank is still writing its shard. Cheap."""
        return not self._checkpoints.is_written

    @property
    def in_flight(self) -> bool:
        """Whether a save has begun and is not finished; the same on all ranks."""
        return self._checkpoints.in_flight

    def begin(self) -> float:
        """Save this step, in the background if possible; returns the seconds that training stood still.

        It is not saved while the newest loss or a weight is not finite; `is_overdue` says so.

        Raises:
            TrainingError: too many saves failed in a row.
        """
        return self._save(wait=False)

    def save_for_good(self, *, is_finished: bool) -> None:
        """Save this step before the run ends, with several attempts if necessary.

        Raises:
            TrainingError: all attempts failed, or the run is finished and its last weights or validation loss are not
                finite.
        """
        state = self._run.state
        self._save(wait=True)
        if self.is_overdue and is_finished:
            raise TrainingError(f"step {state.step}: {self._problem()} at the end of the run; {self._standing()}")
        while not self.is_overdue and self.saved_step != state.step and state.step > 0:
            time.sleep(RETRY_SECONDS)
            self._save(wait=True)
        if is_finished and (problem := state.problem()) is not None:
            raise TrainingError(f"{problem} at the end of the run; {self._standing()}")

    def note_position(self) -> dict[str, Any]:
        """Write down where the stream stands, before a save or where a phase begins; returns that."""
        stream = self._whole_stream()
        if self._history is not None:
            self._history.position(self._run.state.step, stream)
        return stream

    def commit(self) -> float:
        """Commit the save that was begun, if any; returns the seconds that this took.

        Raises:
            TrainingError: too many saves failed in a row.
        """
        if not self._checkpoints.in_flight:
            return 0.0
        return self._commit()

    def _save(self, *, wait: bool) -> float:
        begin = time.monotonic()
        run, remembered = self._run, self._run.state
        step = remembered.step
        if wait or self.saved_step != step:
            self.commit()
        if step == 0 or (self.saved_step == step and self._has_scores == remembered.is_scored):
            return time.monotonic() - begin
        problem = self._problem()
        self.is_overdue = problem is not None
        if problem is not None:
            log.warning("step %d is not saved: %s; %s", step, problem, self._standing())
            return time.monotonic() - begin
        with run.activities("save", step=step):
            remembered.loss_scale = run.engine.loss_scale
            remembered.optimizer_numbers = self._optimizer_numbers()
            state = {"trainer": remembered.to_json(), "stream": self.note_position()}
            self.saved_step, self._has_scores = step, remembered.is_scored
            scores = remembered.signed_scores()
            # weights that updates have been skipped with may be wrecked, though finite: the older ones stay
            replaces = not remembered.skipped_in_a_row
            self._checkpoints.save(step, run.engine, state, scores=scores, wait=wait, replaces=replaces)
        if not self._checkpoints.in_flight:
            self._commit()
        return time.monotonic() - begin

    def _optimizer_numbers(self) -> dict[str, Any]:
        """What the optimizer keeps beside its tensors, which must be the same on all ranks.

        Raises:
            UserError: it is not.
        """
        mine = self._run.engine.optimizer_numbers()
        # gathered by all ranks: one may have none where others have
        for rank, theirs in enumerate(self._run.world.gather(mine)):
            if theirs != mine:
                raise UserError(
                    f"optimizer.kind: its numbers are {mine}, and on rank {rank} {theirs}; allowed are those that are "
                    "the same on all ranks, as of optimizers that work element by element"
                )
        return mine

    def _problem(self) -> str | None:
        """Why these weights are not to be saved; the same on all ranks. None if they are."""
        if not math.isfinite(self.newest_loss):
            return "the newest loss is not finite"
        finite = [torch.isfinite(part).all() for _, _, part in self._run.engine.own_weights()]
        is_finite = not finite or bool(torch.stack(finite).all())
        return None if self._run.world.all_succeeded(is_finite) else "a weight is not finite"

    def _standing(self) -> str:
        if self.saved_step is None:
            return "there is no checkpoint"
        return f"the checkpoint of step {self.saved_step} stands"

    def _commit(self) -> float:
        begin = time.monotonic()
        with self._run.activities("save", step=self._run.state.step):
            outcome = self._checkpoints.commit()
        if outcome is None:
            return time.monotonic() - begin
        self._run.metrics.event(
            outcome.step,
            {
                "event": "checkpoint",
                "succeeded": outcome.succeeded,
                "problem": outcome.problem,
                "seconds": round(outcome.seconds, 3),
                "stopped_seconds": round(outcome.stopped_seconds, 3),
                "checkpoint_failures": self._checkpoints.num_failures,
            },
        )
        if not outcome.succeeded:
            self.saved_step = None
            if self._checkpoints.num_failures >= self._run.config.checkpoint.max_failures:
                raise TrainingError(
                    f"{self._checkpoints.num_failures} saves in a row failed, the last of them: {outcome.problem}; "
                    f"at step {self._run.state.step}"
                )
        return time.monotonic() - begin
