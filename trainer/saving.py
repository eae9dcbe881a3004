"""When a run is saved, what a checkpoint contains besides the weights, and what is logged about it."""

import logging
import math
import os
import time
from typing import Any

import torch

from configs import CheckpointSection, UserError
from configs.process.signals import GRACE_SECONDS
from trainer.checkpoint.manager import CheckpointManager
from trainer.checkpoint.state import TrainerState
from trainer.engines.protocol import Engine
from trainer.evaluation.queued.queue import ScoreQueue
from trainer.lookahead import Lookahead
from trainer.ranks.activities import Activities
from trainer.ranks.distributed import World
from trainer.records.history import whole_stream
from trainer.records.metrics import Metrics
from trainer.runs.errors import TrainingError
from trainer.runs.history.positions import History

log = logging.getLogger(__name__)

RETRY_SECONDS = 5.0


class Saver:
    """Saves a run's state, stream and engine; all ranks make the same calls. Training goes on after a failed save."""

    def __init__(
        self,
        section: CheckpointSection,
        *,
        world: World,
        engine: Engine,
        updates: Lookahead,
        checkpoints: CheckpointManager,
        metrics: Metrics,
        history: History,
        state: TrainerState,
        activities: Activities,
        queue: ScoreQueue | None,
    ) -> None:
        self._section = section
        self._queue = queue
        self._world = world
        self._engine = engine
        self._updates = updates
        self._checkpoints = checkpoints
        self._metrics = metrics
        self._history = history
        self._state = state
        self._activities = activities
        self._grace_seconds = float(os.environ.get(GRACE_SECONDS, "inf"))
        self.newest_loss = 0.0
        """Of the newest update, applied or skipped, by the weights before it; the same on all ranks."""
        self.is_overdue = False
        """Whether the newest save was left out, because of weights that are not good; the same on all ranks."""
        self.saved_step = state.step if state.step else None
        """The newest step that was saved or is being saved; None if there is none."""
        self._warn_of_slow_saves(state.save_seconds)

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
        self._save(wait=True)
        if self.is_overdue and is_finished:
            raise TrainingError(f"step {self._state.step}: {self._problem()} at the end of the run; {self._standing()}")
        while not self.is_overdue and self.saved_step != self._state.step and self._state.step > 0:
            time.sleep(RETRY_SECONDS)
            self._save(wait=True)
        if is_finished and (problem := self._state.problem()) is not None:
            raise TrainingError(f"{problem} at the end of the run; {self._standing()}")

    def note_position(self) -> None:
        """Write down where the stream stands: a phase begins."""
        self._history.position(self._state.step, whole_stream(self._updates.state(), self._world).to_json())

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
        step = self._state.step
        if wait or self.saved_step != step:
            self.commit()
        if self.saved_step == step or step == 0:
            return time.monotonic() - begin
        problem = self._problem()
        self.is_overdue = problem is not None
        if problem is not None:
            log.warning("step %d is not saved: %s; %s", step, problem, self._standing())
            return time.monotonic() - begin
        with self._activities("save", step=step):
            stream = whole_stream(self._updates.state(), self._world)
            self._state.loss_scale = self._engine.loss_scale
            self._state.optimizer_numbers = self._optimizer_numbers()
            state = {"trainer": self._state.to_json(), "stream": stream.to_json()}
            self._history.position(step, state["stream"])
            self.saved_step = step
            awaited = self._queue.awaited if self._queue is not None else frozenset()
            scores = self._state.signed_scores()
            # weights that updates have been skipped with may be wrecked, though finite: the older ones stay
            replaces = not self._state.skipped_in_a_row
            self._checkpoints.save(
                step, self._engine, state, scores=scores, wait=wait, awaited=awaited, replaces=replaces
            )
        if not self._checkpoints.in_flight:
            self._commit()
        return time.monotonic() - begin

    def _optimizer_numbers(self) -> dict[str, Any]:
        """What the optimizer keeps beside its tensors, which must be the same on all ranks.

        Raises:
            UserError: it is not.
        """
        mine = self._engine.optimizer_numbers()
        for rank, theirs in enumerate(self._world.gather(mine)):  # by all ranks: one may have none where others have
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
        finite = [torch.isfinite(part).all() for _, _, part in self._engine.own_weights()]
        is_finite = not finite or bool(torch.stack(finite).all())
        return None if self._world.all_succeeded(is_finite) else "a weight is not finite"

    def _standing(self) -> str:
        if self.saved_step is None:
            return "there is no checkpoint"
        return f"the checkpoint of step {self.saved_step} stands"

    def _commit(self) -> float:
        begin = time.monotonic()
        with self._activities("save", step=self._state.step):
            outcome = self._checkpoints.commit()
        if outcome is None:
            return time.monotonic() - begin
        self._metrics.event(
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
        if outcome.succeeded:
            self._state.save_seconds = max(self._state.save_seconds, outcome.seconds)
            self._warn_of_slow_saves(outcome.seconds)
        else:
            self.saved_step = None
            if self._checkpoints.num_failures >= self._section.max_failures:
                raise TrainingError(
                    f"{self._checkpoints.num_failures} saves in a row failed, the last of them: {outcome.problem}; "
                    f"at step {self._state.step}"
                )
        return time.monotonic() - begin

    def _warn_of_slow_saves(self, seconds: float) -> None:
        if seconds > self._grace_seconds:
            log.warning(
                "a save takes %.0f s, and %.0f s after a request to stop the job is ended: "
                "the older checkpoint will stand then; give it more time, or save less often",
                seconds,
                self._grace_seconds,
            )
