"""Resuming from a checkpoint: checking that it is of the same run, and restoring engine and reader."""

import dataclasses
import logging
from collections.abc import Collection, Iterator, Sequence
from dataclasses import MISSING
from typing import Any

import torch
from torch import Tensor

from configs import OtherPluginError, RunConfig, UserError, load_saved
from configs.reading.variables import dotted, leaves, saved_fields
from data_pipeline.order.state import StreamState
from data_pipeline.stream.reader import POSITION_SETTINGS, StreamReader
from data_pipeline.tokenizer import Tokenizer
from model.flops import Vocabularies, parameters
from model.parts import ModelPart
from trainer.checkpoint.format import Checkpoint, CheckpointError
from trainer.checkpoint.state import TrainerState
from trainer.checkpoint.weights_only import NEEDED, WEIGHTS_ONLY
from trainer.engines import Engine
from trainer.runs.layout import CONFIG

log = logging.getLogger(__name__)

NOT_LISTED = ("name", "output", "prepare", "plugins")
"""Fields that say where the run and its plugins are and what the data are made of; other checks compare their bytes."""
DECIDE_WEIGHTS = ("loss", "model", "optimizer", "schedule")
"""Sections that decide the weights of a finished run; of its data other checks speak."""
SAME_WEIGHTS = {"activation_checkpointing", "dropout", "embedding_dropout", "initialisation"}
"""Fields of the model that may change while the weights keep their meaning; for parts: `ModelPart.same_weights`."""


def check_identity(
    checkpoint: Checkpoint,
    config: RunConfig,
    tokenizer: Tokenizer,
    data_fingerprints: Sequence[str],
    *,
    reset: Collection[str],
) -> None:
    """Refuse to resume with another architecture, tokenizer or dataset, or in mid-epoch with another order of the data.

    Args:
        checkpoint: to resume from.
        config: of the run as it is now.
        tokenizer: of its datasets.
        data_fingerprints: of its datasets, in their order.
        reset: contains `data` if the stream of pairs starts afresh, whatever the checkpoint's was.

    Raises:
        UserError: naming every difference, field by field.
    """
    check_plugins(checkpoint, reset=reset)
    if differences := architecture_differences(checkpoint, config):
        raise UserError(
            f"{'; '.join(differences)}; keep what {checkpoint.folder} was trained with, "
            "or give a new run another name (name=...)"
        )
    trained_with = checkpoint.manifest["fingerprints"]["tokenizer"]
    if tokenizer.fingerprint != trained_with:
        raise UserError(
            f"tokenizer: fingerprint {tokenizer.fingerprint[:12]}, the checkpoint has {trained_with[:12]}; "
            f"use the dataset that {checkpoint.folder} was trained on, data prepared with its tokenizer (zeromt "
            "prepare --tokenizer-of RUN), or a new run that begins with these weights (--from RUN, name=...)"
        )
    if "optimizer" not in reset:
        _check_optimizer(checkpoint, config)
    if "data" not in reset and (differences := _data(checkpoint, config, data_fingerprints)):
        raise UserError(
            f"{'; '.join(differences)}; keep what {checkpoint.folder} was trained with, "
            "or go through the data from the beginning by --reset data"
        )


def _check_optimizer(checkpoint: Checkpoint, config: RunConfig) -> None:
    """Refuse another optimizer, and other parameters that it trains.

    Raises:
        UserError: naming the field.
    """
    saved = load_saved(checkpoint.folder / CONFIG, any_version=True)
    kinds, patterns = (config.optimizer.kind, saved.optimizer.kind), (config.training.freeze, saved.training.freeze)
    for field, (now, then) in {"optimizer.kind": kinds, "training.freeze": patterns}.items():
        if now != then:
            raise UserError(
                f"{field}: {now}, the checkpoint has {then}; set {field}={then}, or begin with new moments by --reset "
                "optimizer"
            )


def restore(
    checkpoint: Checkpoint | None,
    engine: Engine,
    reader: StreamReader,
    *,
    reset: frozenset[str],
    skipped_ranges: Sequence[tuple[int, int, int]] | None,
) -> TrainerState:
    """Restore engine and reader from a checkpoint, except for what starts afresh.

    Args:
        checkpoint: None for a run that begins.
        engine: its model already has the checkpoint's weights.
        reader: of the data.
        reset: which of `data` and `optimizer` start afresh with the checkpoint's weights.
        skipped_ranges: updates not to train on, as (epoch, first, last); the checkpoint's own unless given.

    Returns:
        The state with which the trainer resumes.

    Raises:
        CheckpointError: a file cannot be read, or a part of the optimizer's state is missing.
    """
    if checkpoint is None:
        return TrainerState(skipped_ranges=list(skipped_ranges or []))
    tree = checkpoint.state()
    state = TrainerState.from_json(tree["trainer"])
    if "data" in reset:
        state.recent_losses, state.skipped_ranges = [], []
        log.info("the data begin anew, with the weights of step %d", state.step)
    else:
        reader.restore(StreamState.from_json(tree["stream"]))
    if reset:
        state.start_step, state.start_seconds, state.start_epoch = state.step, state.seconds, reader.epoch
        state.start_tokens = state.target_tokens
    if "optimizer" in reset:
        state.schedule_start = state.step - state.skipped_updates
        log.info("optimizer and learning rate begin anew, with the weights of step %d", state.step)
    num_steps = state.step - state.skipped_updates - state.schedule_start
    restore_optimizer(checkpoint, engine, num_steps=num_steps, reset="optimizer" in reset)
    if "optimizer" not in reset:
        engine.set_fp16_state(state.fp16)
    log.info(
        "resumed from %s: step %d, epoch %d, update %d", checkpoint.folder, state.step, reader.epoch, reader.update
    )
    if skipped_ranges is not None:
        state.skipped_ranges = list(skipped_ranges)
    return state


def check_plugins(checkpoint: Checkpoint, *, reset: Collection[str]) -> None:
    """Refuse plugins whose bytes differ from those that the checkpoint was made with.

    Args:
        checkpoint: to resume from.
        reset: if data and optimizer start afresh, other plugins are allowed, with a log line, as only the weights are
            kept.

    Raises:
        UserError: naming the plugin's hash, and what to do.
    """
    try:
        load_saved(checkpoint.folder / CONFIG)
    except OtherPluginError as error:
        if set(reset) >= NEEDED:
            log.warning("only the weights are kept: %s", error)
            return
        more = ", another name for a new run, or --reset data,optimizer to continue from the weights alone"
        raise UserError("\n".join(f"{line}{more}" for line in str(error).splitlines())) from error


def restore_optimizer(checkpoint: Checkpoint, engine: Engine, *, num_steps: int, reset: bool = False) -> None:
    """Give the engine the checkpoint's fp32 weights, moments and moving average, one tensor at a time.

    Args:
        checkpoint: its weights are in the model already, in the precision that it computes in.
        engine: the one to restore.
        num_steps: updates that are averaged in the moments.
        reset: start with zero moments, as a new optimizer does; the weights are bitwise those of the checkpoint.

    Raises:
        CheckpointError: moments or averages are missing, or a file cannot be read.
    """
    weights, moments, ema = (checkpoint.stored(kind) for kind in ("model", "optimizer", "ema"))
    if not moments and not reset:  # saved before the first update that was applied
        return
    names = [] if reset else [f"{k}/{name}" for name in engine.trained for k in engine.moments[name]]
    if missing := sorted(name for name in names if name not in moments):
        raise CheckpointError(f"{checkpoint.folder}: {missing[0]} of the optimizer's state is missing")
    if engine.keeps_ema and (reset or not ema):
        log.info("training.ema_decay: the moving average begins from the weights")
    elif ema and not engine.keeps_ema:
        log.info("training.ema_decay is 0: the moving average in %s is dropped", checkpoint.folder)

    def moments_of(name: str) -> dict[str, Tensor]:
        shapes = engine.moments[name].items()
        return {key: torch.zeros(shape) if reset else moments[f"{key}/{name}"] for key, shape in shapes}

    ema_of = (ema if ema and not reset else weights).__getitem__
    engine.load_moments(moments_of, weights.__getitem__, ema_of, num_steps=0 if reset else num_steps)


def architecture_differences(checkpoint: Checkpoint, config: RunConfig, *, name: str = "the checkpoint") -> list[str]:
    """The model's fields that differ in another configuration, one text each; it calls the other one `name`."""
    saved, now = load_saved(checkpoint.folder / CONFIG, any_version=True).model, config.model
    # the shape of a weight may depend on the longest sequence
    shapes = [
        parameters(dataclasses.replace(now, max_positions=longest), Vocabularies(source=1, target=1))
        for longest in (1, 2)
    ]
    free = SAME_WEIGHTS | ({"max_positions"} if shapes[0] == shapes[1] else set())
    return [
        f"model.{field}: {value!r}, {name} has {other!r}" for field, value, other in _differences(now, saved, free, "")
    ]


def _differences(now: Any, saved: Any, free: Collection[str], where: str) -> Iterator[tuple[str, Any, Any]]:
    """The fields that differ, also within parts; for parts of different kinds, among the fields that both have."""
    for field in dataclasses.fields(now):
        value, other = getattr(now, field.name), getattr(saved, field.name, MISSING)
        if field.name in free or other is MISSING:
            continue
        if isinstance(value, ModelPart):
            yield from _differences(value, other, value.same_weights, f"{where}{field.name}.")
        elif value != other:
            yield f"{where}{field.name}", value, other


def _data(checkpoint: Checkpoint, config: RunConfig, fingerprints: Sequence[str]) -> list[str]:
    """What differs in the stream of pairs. K and the budgets may change at the end of an epoch."""
    stream = StreamState.from_json(checkpoint.state()["stream"])
    now, saved = (", ".join(f[:12] for f in hashes) for hashes in (fingerprints, stream.fingerprints))
    differences = []
    if list(fingerprints) != list(stream.fingerprints):
        differences.append(f"stream.datasets: fingerprint {now}, the checkpoint has {saved}")
    if config.seed != stream.seed:
        differences.append(f"seed: {config.seed}, the checkpoint has {stream.seed}")
    order: dict[str, int | str] = {"micro_batches": stream.micro_batches} if stream.update > 0 else {}
    if order and not config.training.fit_memory:  # with it the budgets are those that fit, not the configuration's
        order |= {name: stream.settings[name] for name in POSITION_SETTINGS}
    return differences + [
        f"stream.{name}: {getattr(config.stream, name)}, the checkpoint has {value} in the middle of its epoch"
        for name, value in order.items()
        if getattr(config.stream, name) != value
    ]


def announce_changes(config: RunConfig, checkpoint: Checkpoint, state: TrainerState) -> dict[str, tuple[Any, Any]]:
    """Log which fields differ from the checkpoint, and return them.

    Args:
        config: of the run as it is now.
        checkpoint: that it resumes from.
        state: as it resumes.
    """
    if WEIGHTS_ONLY in checkpoint.manifest:  # of another run
        return {}
    changes = changed_fields(load_saved(checkpoint.folder / CONFIG, any_version=True), config)
    for key, (then, now) in changes.items():
        log.info("changed at step %d: %s was %s and is %s", state.step, key, _shown(then), _shown(now))
    return changes


def check_finished(config: RunConfig, checkpoint: Checkpoint) -> None:
    """Refuse settings with which a finished run would have trained otherwise: its weights are not what they ask for.

    Raises:
        UserError: naming the fields.
    """
    changes = changed_fields(load_saved(checkpoint.folder / CONFIG, any_version=True), config)
    lines = [
        f"{key}: {_shown(now)}, but the run has finished with {_shown(then)}; give that, more updates to continue, or "
        "another name for a new run"
        for key, (then, now) in changes.items()
        if key.partition(".")[0] in DECIDE_WEIGHTS
    ]
    if lines:
        raise UserError("\n".join(lines))


def changed_fields(then: RunConfig, now: RunConfig) -> dict[str, tuple[Any, Any]]:
    """The fields that differ, by path: their values then and now; None where there was none."""
    before, after = ({dotted(place): value for place, value in leaves(saved_fields(one))} for one in (then, now))
    pairs = {key: (before.get(key), after.get(key)) for key in {**before, **after}}
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1] and key.split(".")[0] not in NOT_LISTED}


def _shown(value: Any) -> str:
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else f"{value}"
