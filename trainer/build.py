"""From a configuration to a trainer: every part built from its own section."""

import dataclasses
import itertools
import logging
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from configs import RunConfig, UserError, load_run
from configs.load import dump_run
from data_pipeline.order.mixture import Mixture
from data_pipeline.prepared.dataset import Dataset
from data_pipeline.stream.reader import StreamReader, StreamState
from data_pipeline.tokenizer import Tokenizer
from model import Objective
from trainer.checkpoint.format import CONFIG, Checkpoint
from trainer.checkpoint.manager import CheckpointManager, RunIdentity
from trainer.distributed import World
from trainer.engine import MOMENTS, DeepSpeedEngine, Engine, inference_dtype
from trainer.evaluation import Evaluator, HeldOutSet
from trainer.loop import Trainer, TrainerState
from trainer.metrics import Metrics, NoMetrics, RunMetrics
from trainer.model_files import build_model, load_weights
from trainer.pairs import PairLog
from trainer.precision import Precision, resolve_precision
from trainer.scoring import Scorer, bleu_tokenizer

log = logging.getLogger(__name__)

PACKAGES = ("torch", "deepspeed", "webdataset", "sentencepiece", "sacrebleu", "safetensors")


@dataclasses.dataclass(kw_only=True, slots=True, frozen=True)
class BuiltRun:
    """A trainer that is ready, and what is closed after it."""

    trainer: Trainer
    engine: Engine
    evaluator: Evaluator
    metrics: Metrics
    reader: StreamReader
    pair_log: PairLog
    resumed_step: int

    def close(self) -> None:
        """Write out and end what is still open."""
        self.reader.close()
        self.pair_log.close()
        self.metrics.close()


def build(config: RunConfig, world: World, *, stop_requested: Callable[[], bool]) -> BuiltRun:
    """Build a run, resumed from its newest whole checkpoint where there is one.

    Raises:
        UserError: data, tokenizer or checkpoint do not fit the configuration.
    """
    precision = resolve_precision(config.engine.precision, world.device)
    datasets = [(Dataset.load(d.path, config.stream), d.weight) for d in config.datasets]
    check_lengths([d for d, _ in datasets], config)
    tokenizer = datasets[0][0].tokenizer
    reader = StreamReader(datasets, config.stream, seed=config.seed, rank=world.rank, world_size=world.size)
    folder = Path(config.folder)
    identity = _identity(config, [d for d, _ in datasets], precision)
    checkpoints = CheckpointManager(folder / "checkpoints", config.checkpoint, world, identity)
    evaluator = _evaluator(config, [d for d, _ in datasets], world, precision)

    checkpoint = checkpoints.newest()
    model = build_model(config.model, tokenizer, seed=config.seed)
    state = TrainerState()
    if checkpoint is not None:  # the weights go in before DeepSpeed takes its fp32 masters from them
        check_identity(checkpoint, config, tokenizer)
        state, stream = read_state(checkpoint)
        reader.restore(stream)
        load_weights(checkpoint, model)
    engine = DeepSpeedEngine(
        Objective(model, label_smoothing=config.loss.label_smoothing).train(),
        section=config.engine,
        optimizer=config.optimizer,
        precision=precision,
        device=world.device,
        world_size=world.size,
    )
    if checkpoint is not None:
        restore_optimizer(checkpoint, engine, num_steps=state.step - state.skipped_updates)
        where = f"step {state.step}, epoch {reader.epoch}, update {reader.update}"
        log.info("resumed from %s: %s", checkpoint.folder, where)
    for line in describe_mixture([d for d, _ in datasets], reader.mixture):
        log.info("%s", line)
    metrics: Metrics = NoMetrics()
    if world.is_main:
        (folder / CONFIG).write_text(identity.config_yaml, encoding="utf-8")
        metrics = RunMetrics(folder, tensorboard=config.training.tensorboard, resume_step=state.step)
    pair_log = PairLog(folder / "pairs", enabled=config.training.record_pairs, resume_step=state.step, world=world)
    num_parameters, num_pairs = sum(engine.parameter_sizes().values()), sum(d.num_pairs for d, _ in datasets)
    ranks = f"{world.size} rank{'s' * (world.size > 1)} on {world.device.type}"
    log.info(
        "%d parameters, %d pairs, %s, ZeRO-%d, %s",
        num_parameters,
        num_pairs,
        ranks,
        config.engine.zero_stage,
        precision,
    )
    trainer = Trainer(
        config,
        world=world,
        engine=engine,
        reader=reader,
        evaluator=evaluator,
        checkpoints=checkpoints,
        metrics=metrics,
        pair_log=pair_log,
        state=state,
        stop_requested=stop_requested,
    )
    return BuiltRun(
        trainer=trainer,
        engine=engine,
        evaluator=evaluator,
        metrics=metrics,
        reader=reader,
        pair_log=pair_log,
        resumed_step=state.step,
    )


def _identity(config: RunConfig, datasets: Sequence[Dataset], precision: Precision) -> RunIdentity:
    """What the run's checkpoints say of it."""
    tokenizer = datasets[0].tokenizer
    return RunIdentity(
        config_yaml=dump_run(config),
        tokenizer_files=tokenizer.files(),
        manifest={
            "zero_stage": config.engine.zero_stage,
            "precision": precision,
            "versions": versions(),
            "fingerprints": {"data": [d.fingerprint for d in datasets], "tokenizer": tokenizer.fingerprint},
        },
    )


def _evaluator(config: RunConfig, datasets: Sequence[Dataset], world: World, precision: Precision) -> Evaluator:
    """The evaluator of the validation sets, of every dataset that has one.

    Raises:
        UserError: none has.
    """
    tokenizer = datasets[0].tokenizer
    names = dataset_names(datasets)
    held_out = []
    for name, dataset in ({n: d for n, d in names.items() if "valid" in d.index.held_out} or names).items():
        sources, references = dataset.held_out("valid")
        scorer = Scorer(bleu_tokenizer(config.evaluation.tokenizer, dataset.target_language))
        held_out.append(HeldOutSet(name=name, sources=sources, references=references, scorer=scorer))
    return Evaluator(
        config.evaluation,
        build_model=lambda: build_model(config.model, tokenizer, seed=config.seed),
        tokenizer=tokenizer,
        held_out=held_out,
        label_smoothing=config.loss.label_smoothing,
        dtype=inference_dtype(precision),
        world=world,
        folder=Path(config.folder) / "eval",
    )


def dataset_names(datasets: Sequence[Dataset]) -> dict[str, Dataset]:
    """Datasets by name; one whose name is taken gets a number."""
    names: dict[str, Dataset] = {}
    for dataset in datasets:
        candidates = itertools.chain([dataset.name], (f"{dataset.name}-{n}" for n in itertools.count(2)))
        names[next(name for name in candidates if name not in names)] = dataset
    return names


def describe_mixture(datasets: Sequence[Dataset], mixture: Mixture) -> list[str]:
    """A line for each dataset of a mixture; nothing for one dataset."""
    if mixture.is_single:
        return []
    total, lines = sum(mixture.sizes), []
    for (name, dataset), share in zip(dataset_names(datasets).items(), mixture.shares, strict=True):
        part = share / sum(mixture.shares)
        passes = part * total / dataset.num_pairs
        lines.append(f"dataset {name}: {dataset.num_pairs:,} pairs, share {part:.2%}, {passes:.2f} passes an epoch")
    return lines


def check_lengths(datasets: Sequence[Dataset], config: RunConfig) -> None:
    """Refuse pairs that fit a micro-batch and are too long for the model.

    Raises:
        UserError: naming the dataset, its longest pair and what is allowed.
    """
    most = config.model.max_positions
    for dataset in datasets:
        for side in ("source", "target"):
            longest = int(dataset.blocks[f"longest_{side}"].max()) + 1
            if longest > most and getattr(config.stream, f"{side}_tokens") > most:
                raise UserError(
                    f"model.max_positions: {most} is less than the {longest} of the longest {side} in "
                    f"{dataset.location} with its end mark; allowed is at least that, or "
                    f"stream.{side}_tokens={most} with stream.on_oversized_pair=drop"
                )


def check_identity(checkpoint: Checkpoint, config: RunConfig, tokenizer: Tokenizer) -> None:
    """Refuse to resume with another architecture or tokenizer, field by field.

    Raises:
        UserError: naming the first difference and how many there are.
    """
    saved = dataclasses.asdict(load_run(str(checkpoint.folder / CONFIG)).model)
    now = dataclasses.asdict(config.model)
    changed = [f"model.{k}: {now[k]!r}, the checkpoint has {saved[k]!r}" for k in now if now[k] != saved[k]]
    if changed:
        raise UserError(
            f"{'; '.join(changed)}; allowed is what {checkpoint.folder} was trained with, or another name for a new run"
        )
    trained_with = checkpoint.manifest["fingerprints"]["tokenizer"]
    if tokenizer.fingerprint != trained_with:
        raise UserError(
            f"tokenizer: fingerprint {tokenizer.fingerprint[:12]}, the checkpoint has {trained_with[:12]}; "
            f"allowed is the dataset that {checkpoint.folder} was trained on, or another name for a new run"
        )


def read_state(checkpoint: Checkpoint) -> tuple[TrainerState, StreamState]:
    """The trainer's state and the stream's."""
    tree = checkpoint.state()
    return TrainerState.from_json(tree["trainer"]), StreamState.from_json(tree["stream"])


def restore_optimizer(checkpoint: Checkpoint, engine: DeepSpeedEngine, *, num_steps: int) -> None:
    """Give the engine the checkpoint's fp32 weights and moments."""
    moments: dict[str, dict[str, torch.Tensor]] = {}
    for key, tensor in checkpoint.tensors("optimizer"):
        kind, name = key.split("/", 1)
        moments.setdefault(name, {})[kind] = tensor
    if not moments:  # saved before the first step that was applied
        return
    weights = dict(checkpoint.tensors("model"))
    incomplete = [n for n in weights if set(moments.get(n, ())) != set(MOMENTS)]
    if incomplete:
        raise UserError(f"{checkpoint.folder}: the optimizer's state of {incomplete[0]} is missing")
    engine.load_moments(moments, weights, num_steps=num_steps)


def versions() -> Mapping[str, Any]:
    """Versions of the packages that have a part in the result."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "unknown"
    return found
