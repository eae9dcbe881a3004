"""Forks of a run: they repeat its updates from a checkpoint on, giving some pairs weight 0."""

import contextlib
import dataclasses
import math
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from configs import RunConfig, UserError
from configs.data import UntilSection
from configs.process.streams import tell
from data_pipeline.stream.batch import MicroBatch
from data_pipeline.tokenizer import PAD_ID
from trainer.changes import changed_fields
from trainer.checkpoint.format import Checkpoint
from trainer.checkpoint.state import TrainerState
from trainer.engines.batches import Update
from trainer.ranks.device import settle_device
from trainer.ranks.distributed import World
from trainer.ranks.process import compute_deterministically, tune_process
from trainer.runs.layout import CHECKPOINTS, LATEST
from zeromt.inspecting.found import Standing, checkpoint_before, standing_before

Leaves = Callable[[MicroBatch], NDArray[np.bool_]]
"""(B,): which rows of a micro-batch to leave out."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Forking:
    """Where forks begin."""

    checkpoint: Checkpoint
    standing: Standing
    """The run's position at the checkpoint; its configuration is that of the updates that follow."""

    @property
    def step(self) -> int:
        """Updates done before the fork's first."""
        return int(self.checkpoint.manifest["step"])


@dataclass(kw_only=True, slots=True, frozen=True)
class Replayed:
    """An update of a fork."""

    loss: float
    """Loss per target token over the pairs that are not left out; NaN if none remains."""
    num_left_out: int
    """Pairs."""


def find_beginning(run: Path, update: int) -> Forking:
    """The newest whole checkpoint before an update, with the configuration of the updates after it.

    Raises:
        UserError: there is none, or training did not simply continue from it.
    """
    checkpoint = checkpoint_before(run, update)
    step = int(checkpoint.manifest["step"])
    standing, at = (standing_before(run, one) for one in (step + 1, update))
    stream = checkpoint.state().get("stream")
    is_anew = _phase(standing.stream) <= _phase(stream)  # else a phase has begun there
    if standing.step == step and stream != standing.stream and is_anew:
        raise UserError(
            f"--at: {update}: the run began its data anew with the weights of step {step}; allowed is an update behind "
            "its first save from there on"
        )
    for key, (then, now) in changed_fields(standing.config, at.config).items():
        tell(f"zeromt: from step {step} to {update} the run was started again with {key}: {now}; the replay has {then}")
    return Forking(checkpoint=checkpoint, standing=replace(standing, config=_with_known_phases(standing, checkpoint)))


def _phase(stream: Mapping[str, Any] | None) -> int:
    return int((stream or {}).get("phase", 0))


def _with_known_phases(standing: Standing, checkpoint: Checkpoint) -> RunConfig:
    """The configuration, where a phase that the run has gone through ends where it did: nothing is evaluated again."""
    begun = TrainerState.from_json(checkpoint.state()["trainer"]).phase
    phases = list(standing.config.phases)
    if begun is None or not phases:
        return standing.config
    number, first = begun.number, begun.step
    for step, following in standing.switches:
        if following > number and step > first:
            phases[number] = replace(phases[number], until=UntilSection(updates=step - first))
            number, first = following, step
    return replace(standing.config, phases=phases)


@contextlib.contextmanager
def forks(config: RunConfig) -> Iterator[World]:
    """Set this process up to train forks, one after the other."""
    settle_device(config.engine.device)
    tune_process()
    before = torch.are_deterministic_algorithms_enabled()
    if config.training.deterministic:
        compute_deterministically(draws_samples=False)  # nothing is evaluated
    world = World(timeout_minutes=config.engine.communication_timeout_minutes)
    try:
        yield world
    finally:
        world.close()
        torch.use_deterministic_algorithms(before)


def train_fork(forking: Forking, world: World, num_updates: int, leaves: Leaves | None) -> dict[int, Replayed]:
    """Train a fork, which is then discarded, with the real trainer.

    A pair that is left out stays in its micro-batch, with targets that do not count: shapes, dropout draws and all
    other micro-batches stay the same, and an update is normalised by its remaining target tokens. An update without
    remaining pairs has a gradient of zero.

    Args:
        forking: where it begins.
        world: of one rank.
        num_updates: how many.
        leaves: decides which rows to leave out; None for none.

    Returns:
        Results by number of the update; fewer if the run ends before.

    Raises:
        UserError: the checkpoint cannot be trained on.
    """
    # Importing DeepSpeed takes seconds and fixes the device, which `forks` has chosen.
    from trainer.build import build
    from trainer.stability.rewind import Rewind

    by_update = dict[int, Replayed]()

    def rows_of(micro_batches: Sequence[MicroBatch | None]) -> list[NDArray[np.bool_] | None]:
        return [None if m is None or leaves is None else leaves(m) for m in micro_batches]

    def adapt(micro_batches: list[MicroBatch | None]) -> list[MicroBatch | None]:
        rows = rows_of(micro_batches)
        return [m if m is None or r is None else without(m, r) for m, r in zip(micro_batches, rows, strict=True)]

    def note(step: int, update: Update, loss: float) -> None:
        num_left_out = sum(int(np.count_nonzero(r)) for r in rows_of(update.micro_batches) if r is not None)
        by_update[step] = Replayed(loss=loss if update.counts.target_tokens else math.nan, num_left_out=num_left_out)
        if len(by_update) == num_updates:
            raise _EnoughError

    with tempfile.TemporaryDirectory(prefix="zeromt-replay-") as folder:
        config = _config(forking.standing.config, Path(folder))
        checkpoints = Path(config.folder) / CHECKPOINTS
        checkpoints.mkdir(parents=True)
        name = forking.checkpoint.folder.name
        (checkpoints / name).symlink_to(forking.checkpoint.folder.absolute())
        (checkpoints / LATEST).write_text(f"{name}\n", encoding="utf-8")
        rewind = Rewind(reason="", step=0, skipped_ranges=forking.standing.skipped_ranges)
        try:
            built = build(config, world, stop_requested=lambda: False, rewind=rewind)
        except Rewind as decision:
            raise UserError(f"--at: nothing trains on from {name}: {decision}") from decision
        try:
            built.context.updates.reader.adapt, built.context.records.on_update = adapt, note
            with contextlib.suppress(_EnoughError):
                built.trainer.fit()
        finally:
            built.close()
    return by_update


class _EnoughError(Exception):
    """Raised when the fork has made its updates, so that nothing is evaluated or saved."""


def _config(config: RunConfig, folder: Path) -> RunConfig:
    """A fork's configuration: anything that does not affect updates is off, and nothing ends or rewinds the fork.

    It may take longer than the run, which had more ranks: the clock only matters if the learning rate depends on it.
    """
    training = dataclasses.replace(
        config.training,
        max_target_tokens=config.training.max_target_tokens if config.schedule.ends_by("tokens") else None,
        max_minutes=config.training.max_minutes if config.schedule.ends_by("minutes") else None,
        early_stopping=None,
        tensorboard=False,
        record_pairs=False,
        memory_probe=False,
        max_skipped_in_a_row=sys.maxsize,
    )
    return dataclasses.replace(
        config,
        output=str(folder),
        name="fork",
        training=training,
        trackers=[],
        stability=dataclasses.replace(config.stability, spike_score=0),
        stream=dataclasses.replace(config.stream, workers=0),
        evaluation=dataclasses.replace(config.evaluation, every_updates=0),
        checkpoint=dataclasses.replace(config.checkpoint, every_updates=0),
    )


def without(micro_batch: MicroBatch, rows: NDArray[np.bool_]) -> MicroBatch:
    """A micro-batch of the same shape, with some rows' targets removed.

    Args:
        micro_batch: B rows.
        rows: (B,), which rows.
    """
    if not rows.any():
        return micro_batch
    return dataclasses.replace(micro_batch, target_output=np.where(rows[:, None], PAD_ID, micro_batch.target_output))
