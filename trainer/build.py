"""From a configuration to a trainer: every part built from its own section."""

import dataclasses
import logging
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from configs import RunConfig, UserError, load_saved
from configs.components import make
from configs.load import dump_run
from configs.plugins import hashes
from configs.process.files.inside import write_text
from configs.reading.variables import saved_fields
from data_pipeline.order.state import StreamState
from data_pipeline.prepared.dataset import Dataset
from data_pipeline.prepared.index import SourceEntry
from data_pipeline.tokenizer import Tokenizer
from model import Objective
from model.stepping import check_steps
from model.trained import trained
from trainer.checkpoint.format import SOURCES, TARGET_TAGS, Checkpoint
from trainer.checkpoint.model_files import load_weights
from trainer.checkpoint.newest import find_newest
from trainer.checkpoint.resume import announce_changes, check_finished, check_identity, restore
from trainer.checkpoint.save import RunIdentity, Saver
from trainer.checkpoint.state import TrainerState
from trainer.checkpoint.weights_only import check_reset
from trainer.context import RunContext
from trainer.datasets import (
    check_lengths,
    check_prepared,
    check_tags,
    open_datasets,
    open_reader,
    tokenizer_of,
    with_languages,
)
from trainer.engines.batches import NotFiniteError
from trainer.engines.deepspeed.config import check_keys
from trainer.engines.deepspeed.engine import DeepSpeedEngine
from trainer.evaluation.evaluator import Evaluator
from trainer.evaluation.queue import ScoreQueue
from trainer.evaluation.scores import enter_series
from trainer.evaluation.sets import held_out_sets
from trainer.limits import Limits, NothingToDo
from trainer.lookahead import Lookahead
from trainer.loop import Trainer
from trainer.phases import check_phase, enter_phase, new_objective
from trainer.ranks.activities import Activities
from trainer.ranks.device import is_host
from trainer.ranks.distributed import World
from trainer.ranks.precision import Precision, agreed_kernels, agreed_precision
from trainer.records.metrics import Metrics
from trainer.runs.failure import TrainingError
from trainer.runs.history import LEFT_OUT
from trainer.runs.layout import CHECKPOINTS, CONFIG, STATUS_FILE, versions
from trainer.runs.parents import PARENT, Parent
from trainer.runs.status import read_status
from trainer.spikes import Rewind, past
from trainer.stability import memory
from trainer.stability.attention import settle_attention
from trainer.stability.memory import settle_memory
from trainer.terminal import announce, estimate_updates
from trainer.transfer import Ancestry, ancestry_of

log = logging.getLogger(__name__)

SAMPLED_PAIRS = 8192
"""Of each dataset, to know how long rows are."""


def build(
    asked: RunConfig,
    world: World,
    *,
    stop_requested: Callable[[], bool],
    activities: Activities | None = None,
    reset: frozenset[str] = frozenset(),
    parent: str | None = None,
    rewind: Rewind | None = None,
) -> Trainer:
    """Build a run, resumed from its newest whole checkpoint if it has one.

    Args:
        asked: the run's configuration.
        world: the ranks.
        stop_requested: whether this rank was asked to stop.
        activities: time limits, and what the time is spent on; no limits by default.
        reset: which of `data` and `optimizer` to start afresh, keeping the checkpoint's weights.
        parent: RUN[@step] whose weights a run without a checkpoint begins with.
        rewind: the one that led to this, if any.

    Raises:
        Rewind: the checkpoint cannot be trained on.
        UserError: data, tokenizer or checkpoint do not fit the configuration, or the device is too small.
    """
    on_each, on_cpus = int(os.environ.get("LOCAL_WORLD_SIZE", world.size)), is_host(world.device)
    check_keys(asked.engine, clip_norm=asked.optimizer.clip_norm, ranks=world.size, on_each=on_each, is_host=on_cpus)
    precision, datasets = agreed_precision(asked.engine.precision, world), open_datasets(asked)
    check_lengths(datasets, asked)
    check_tags(datasets, asked)
    named, tokenizer = with_languages(asked, datasets), tokenizer_of(datasets)
    held_out = held_out_sets(named, datasets, world)
    passed_over, skipped_ranges = ((), None) if rewind is None else (rewind.passed_over, rewind.skipped_ranges)
    own, refused = find_newest(Path(named.folder) / CHECKPOINTS, world, passed_over)
    ancestry = ancestry_of(named, parent, own, world)
    checkpoint, begins = own or ancestry.continued, ancestry.source is not None
    if checkpoint is not None:
        _check_resumed(checkpoint, named, datasets, reset)
    _check_left(named, datasets, checkpoint, ancestry, world, reset=reset, is_rewind=skipped_ranges is not None)
    objective = partial(_objective, named, tokenizer, checkpoint, ancestry)
    engine = _engine(named, objective(), precision, world)
    evaluator = Evaluator(named, tokenizer, held_out, world, precision, stop_requested)
    try:
        lengths = np.concatenate([dataset.sampled_lengths(SAMPLED_PAIRS) for dataset in datasets])
        attending = settle_attention(named, lengths, engine, world, checkpoint)
        config = settle_memory(attending, datasets, engine, evaluator, world, checkpoint, objective)
        reader = open_reader(config, datasets, rank=world.rank, world_size=world.size)
        state = restore(checkpoint, engine, reader, reset=reset, skipped_ranges=skipped_ranges)
    except NotFiniteError as error:
        engine.close()
        raise past(None if begins else checkpoint, rewind, error) from error
    identity = _identity(config, datasets, precision, ancestry.parent, earlier=checkpoint or ancestry.source)
    ancestry.begin(engine, is_main=world.is_main)
    enter_phase(config, state, reset=reset)
    changed, an_epoch = enter_series(config, datasets, held_out, state), estimate_updates(config, reader)
    if world.is_main and skipped_ranges is None:
        announce(config, reader, engine, world, held_out, updates_an_epoch=an_epoch)
    metrics = _metrics(config, identity, -1 if begins else state.step, world)
    context = RunContext(
        config=config,
        world=world,
        engine=engine,
        updates=Lookahead(reader, world),
        state=state,
        metrics=metrics,
        queue=ScoreQueue(config, held_out, state, metrics) if world.is_main and config.evaluation.queued else None,
        activities=activities or Activities(config),
        stop_requested=stop_requested,
    )
    saver = _saver(context, identity, refused, has_own=own is not None, has_parents=ancestry.continued is not None)
    trainer = Trainer(context, evaluator=evaluator, saver=saver, updates_an_epoch=an_epoch, begins_trained=begins)
    if changed is not None:
        metrics.event(state.step, changed)
    if rewind is not None:
        figures = {"event": "rewind", "from_step": rewind.step, "reason": rewind.reason, LEFT_OUT: state.skipped_ranges}
        metrics.event(state.step, figures)
    if checkpoint and skipped_ranges is None and (changes := announce_changes(config, checkpoint, state)):
        metrics.event(state.step, {"event": "changed", "fields": changes})
    return trainer


def _check_resumed(
    checkpoint: Checkpoint, config: RunConfig, datasets: Sequence[Dataset], reset: frozenset[str]
) -> None:
    """Refuse a checkpoint that the run cannot resume from.

    Raises:
        UserError: it is of another run.
    """
    check_reset(checkpoint, reset)
    fingerprints: list[str] = []
    if "data" not in reset:
        check_phase(checkpoint, config)
        stream = config.streams[int(checkpoint.state().get("stream", {}).get("phase", 0))]
        of_path = {source.path: dataset for source, dataset in zip(config.datasets, datasets, strict=True)}
        paths = [source.path for source in stream.datasets] or [config.prepare.output]
        fingerprints = [of_path[path].fingerprint for path in paths]
    check_identity(checkpoint, config, tokenizer_of(datasets), fingerprints, reset=reset)


def _check_left(
    config: RunConfig,
    datasets: Sequence[Dataset],
    checkpoint: Checkpoint | None,
    ancestry: Ancestry,
    world: World,
    *,
    reset: frozenset[str],
    is_rewind: bool,
) -> None:
    """Check that the data were prepared as the configuration says, and that there is anything left to do.

    Raises:
        NothingToDo: a limit is reached, and the step has its scores; those of a finished run may be newer than its
            checkpoint.
        TrainingError: a limit is reached, with a validation loss that is not finite.
        UserError: the data are others, or a finished run would have trained otherwise.
    """
    saved = None if checkpoint is None else load_saved(checkpoint.folder / CONFIG, any_version=True).prepare
    check_prepared(datasets, config, saved=saved, reset="data" in reset)
    if checkpoint is None or reset or is_rewind:
        return
    tree = checkpoint.state()
    state = TrainerState.from_json(tree["trainer"])
    limits = Limits(config, state).reached(StreamState.from_json(tree["stream"]).epoch)
    if limits and (problem := state.problem()) is not None:
        raise TrainingError(f"step {state.step}: {problem}")
    status = read_status(Path(config.folder) / STATUS_FILE) if world.is_main else None
    is_finished = status is not None and (status.state, status.step) == ("finished", state.step)
    if limits and (state.step in state.best_scores or world.from_main(is_finished)):
        check_finished(config, checkpoint)
        raise NothingToDo(limits, step=state.step)


def _engine(config: RunConfig, objective: Objective, precision: Precision, world: World) -> DeepSpeedEngine:
    """The model in its engine: DeepSpeed takes its fp32 masters from the model's weights."""
    check_steps(objective.model)
    kernels = agreed_kernels(config.engine.kernels, precision, world)
    return DeepSpeedEngine(
        objective,
        section=dataclasses.replace(config.engine, kernels=kernels),
        optimizer=config.optimizer,
        precision=precision,
        device=world.device,
        ema_decay=config.training.ema_decay,
        trained=trained(config, dict(objective.model.named_parameters())),
    )


def _objective(config: RunConfig, tokenizer: Tokenizer, checkpoint: Checkpoint | None, ancestry: Ancestry) -> Objective:
    """The model with the weights that the run begins with or resumes from."""
    with memory.advised(config, "model", UserError):
        objective = new_objective(config, tokenizer)
    if checkpoint is not None:
        load_weights(checkpoint, objective.model, raw=True)
    ancestry.fill(objective.model, tokenizer)
    return objective


def _saver(run: RunContext, identity: RunIdentity, refused: set[str], *, has_own: bool, has_parents: bool) -> Saver:
    return Saver(
        config=run.config,
        world=run.world,
        engine=run.engine,
        state=run.state,
        identity=identity,
        stream=run.updates.state,
        event=run.metrics.event,
        activities=run.activities,
        has_own=has_own,
        has_parents=has_parents,
        refused=refused,
    )


def _metrics(config: RunConfig, identity: RunIdentity, step: int, world: World) -> Metrics:
    """The writers of the run's figures after `step` (-1: all) and of its resolved configuration. Rank 0 writes."""
    if not world.is_main:
        return Metrics(None)
    folder = Path(config.folder)
    trackers = [*([make("tracker", "tensorboard")] if config.training.tensorboard else []), *config.trackers]
    metrics = Metrics(folder, resume_step=step, trackers=trackers, config=saved_fields(config))
    write_text(folder / CONFIG, identity.config_yaml)
    return metrics


def _identity(
    config: RunConfig,
    datasets: Sequence[Dataset],
    precision: Precision,
    parent: Parent | None = None,
    *,
    earlier: Checkpoint | None = None,
) -> RunIdentity:
    """What the run's checkpoints record about it. `earlier` is the checkpoint that it resumes or begins from."""
    tokenizer, tags = tokenizer_of(datasets), [dataset.index.target_tag for dataset in datasets]
    data = {"data": [d.fingerprint for d in datasets], "tokenizer": tokenizer.fingerprint, **hashes(config.plugins)}
    return RunIdentity(
        config_yaml=dump_run(config),
        tokenizer_files=tokenizer.files(),
        manifest={
            "zero_stage": config.engine.zero_stage,
            "precision": precision,
            "versions": versions(),
            "fingerprints": data,
            **({} if parent is None else {PARENT: dataclasses.asdict(parent)}),
            **({TARGET_TAGS: tags} if any(tags) else {}),
            **_sources(datasets, [] if earlier is None else earlier.manifest.get(SOURCES, [])),
        },
    )


def _sources(datasets: Sequence[Dataset], earlier: Sequence[Any]) -> dict[str, Any]:
    """What was said of the datasets' files, behind what the earlier checkpoint has; of the others, their names."""
    if not earlier and not any(dataset.index.sources for dataset in datasets):
        return {}
    entries = list(earlier)
    for dataset in datasets:
        plain = [SourceEntry(files=[dataset.name], pairs=dataset.num_pairs)]
        entries += [dataclasses.asdict(entry) for entry in dataset.index.sources or plain]
    return {SOURCES: [entry for number, entry in enumerate(entries) if entry not in entries[:number]]}
