"""The tables at the start and at the end of a run: what is trained on what; results, and what to do next."""

import logging
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from configs import RunConfig, Schedule
from configs.process.text import visible
from data_pipeline.order.windows import Budget, plan_window
from data_pipeline.stream.reader import StreamReader
from model import trained
from trainer.checkpoint.state import TrainerState
from trainer.datasets import describe_weights
from trainer.engines.protocol import Engine
from trainer.evaluation.best import last_and_best
from trainer.evaluation.sets import HeldOutSet
from trainer.ranks.device import describe_uneven, device_name, is_host, kind
from trainer.ranks.distributed import World
from trainer.runs.layout import REPORT, checkpoint_folder
from trainer.terminal.forecast import Forecast, interval
from trainer.terminal.lines import log_row

log = logging.getLogger(__name__)

SAMPLED_PAIRS = 8192
"""Number of pairs from which micro-batches are estimated."""


def announce(
    config: RunConfig,
    reader: StreamReader,
    engine: Engine,
    world: World,
    held_out: Sequence[HeldOutSet],
    state: TrainerState,
    *,
    is_new: bool,
) -> Forecast:
    """Log the table on rank 0, and make the forecast of the run's end.

    Args:
        config: the run's.
        reader: of the run's datasets.
        engine: with the run's model.
        world: the ranks.
        held_out: the sets to evaluate on.
        state: with which training starts.
        is_new: False after a rewind, when the table has been shown before.
    """
    uneven = None if is_host(world.device) else describe_uneven(config.stream.micro_batches, world.size)
    parameters = _parameters(engine)
    updates = estimate_updates(config, reader)
    if world.is_main and is_new:
        for line in [*describe_weights(reader.phase), *trained.tied(config)]:
            log.info("%s", line)
        for warning in filter(None, [uneven, *warnings_of(config)]):
            log.warning("%s", warning)
        ranks = f"{world.size} rank{'s' * (world.size > 1)} on {kind(world.device)}, {device_name(world.device)}"
        rows = {
            "model": describe_model(config),
            "parameters": parameters,
            "devices": f"{ranks}, ZeRO-{config.engine.zero_stage}, {engine.precision}",
            "data": "; ".join(_data(reader)),
            "an update": describe_update(config) + (f"; rows are padded: {why}" if (why := engine.why_padded) else ""),
            "an epoch": f"about {updates:,.0f} updates",
            **({"phases": "; ".join(describe_phases(config))} if config.phases else {}),
            "schedule": f"{describe_schedule(config.schedule, config)}; {config.optimizer.kind}",
            "limits": ", ".join(_limits(config)),
            "evaluation": _evaluation(config, held_out),
            "checkpoints": f"{_when(config.checkpoint.every_updates)}; the last {config.checkpoint.keep_last} are kept",
            "written to": config.folder,
        }
        for name, text in rows.items():
            log_row(name, visible(text))
    return Forecast(config, state, updates_an_epoch=updates)


def _parameters(engine: Engine) -> str:
    """How many parameters there are, and how many are trained."""
    sizes = engine.parameter_sizes()
    total, number = sum(sizes.values()), sum(sizes[name] for name in engine.trained)
    return f"{total:,}" + (f", {number:,} ({number / total:.1%}) are trained" if number < total else "")


def estimate_updates(config: RunConfig, reader: StreamReader) -> float:
    """Updates of an epoch: as planned for a mixture, else estimated from a sample of micro-batches."""
    if not reader.mixture.is_single:
        return reader.mixture.epoch_updates(0, reader.usual_pairs)
    [dataset], section = reader.phase.datasets, config.stream
    of_lane = max(dataset.num_pairs // section.micro_batches, 1)
    size = min(of_lane, section.window_pairs, SAMPLED_PAIRS)  # a window's micro-batches, which have its padding
    sample = dataset.sampled_lengths(size)
    planned = plan_window(sample, Budget.of(section), seed=config.seed, place=(0, 0, 0, 0), before=None)
    return max(len(planned) * of_lane / len(sample), 1.0)


def describe_model(config: RunConfig) -> str:
    """Layers, width, and the kind of every part."""
    model = config.model
    parts = (model.attention, model.feed_forward, model.positions, model.norm, model.residual)
    layers = f"{model.encoder_layers} + {model.decoder_layers} layers of d_model {model.d_model}"
    return f"{layers}, {', '.join(part.kind for part in parts)}; tied embeddings: {model.tied_embeddings}"


def _data(reader: StreamReader) -> Iterator[str]:
    mixture = reader.mixture
    for dataset, given in zip(reader.phase.datasets, mixture.proportions, strict=True):
        part = "" if mixture.is_single else f" ({float(given / sum(mixture.proportions)):.1%})"
        yield f"{dataset.num_pairs:,} pairs of {dataset.location}{part}"


def describe_update(config: RunConfig) -> str:
    """Micro-batches and their budgets."""
    stream = config.stream
    return (
        f"{stream.micro_batches} micro-batch{'es' * (stream.micro_batches > 1)} of up to {stream.source_tokens:,} "
        f"source and {stream.target_tokens:,} target tokens"
    )


def describe_phases(config: RunConfig) -> Iterator[str]:
    """What each phase reads, and until when."""
    for phase, stream in zip(config.phases, config.streams, strict=True):
        read = ", ".join(source.path for source in stream.datasets) or config.prepare.output
        end = "to the end" if phase.until is None else phase.until.describe()
        yield f"{phase.name}: {end}, of {read}"


def describe_schedule(schedule: Schedule, config: RunConfig) -> str:
    """Kind, warm-up, highest rate, and what its end comes with."""
    end = f", to its end with the {schedule.ends_with} limit" if schedule.ends else ""
    return f"{schedule.kind}, {schedule.length('warmup'):,} {schedule.counts} up to {config.optimizer.lr:g}{end}"


def warnings_of(config: RunConfig) -> Iterator[str]:
    """What a run may end without: a checkpoint of its best step, a rate at its peak."""
    scored, saved = config.evaluation.every_updates, config.checkpoint.every_updates
    warmup, most = config.schedule.warmup_updates, config.training.max_updates
    if config.checkpoint.keep_best and 0 < scored < most and (not saved or scored % saved):
        yield (
            f"evaluation.every_updates={scored} is no multiple of checkpoint.every_updates={saved}, so the best step "
            f"may have no checkpoint; set checkpoint.every_updates={scored}"
        )
    if config.schedule.counts == "updates" and warmup > most:
        yield (
            f"schedule.warmup_updates={warmup} is above training.max_updates={most}, so the rate ends at "
            f"{most / warmup:.1%} of optimizer.lr; set schedule.warmup_updates to {max(most // 10, 1)} or so"
        )


def _limits(config: RunConfig) -> Iterator[str]:
    section = config.training
    limits = (section.max_updates, section.max_target_tokens, section.max_epochs, section.max_minutes)
    units = ("updates", "target tokens", "epochs", "minutes")
    yield from (f"{most:,} {unit}" for most, unit in zip(limits, units, strict=True) if most is not None)
    if section.early_stopping is not None:
        yield f"{section.early_stopping.patience} evaluations without a better one"


def _when(every: int) -> str:
    return f"every {every:,} updates and at the end" if every else "at the end"


def _evaluation(config: RunConfig, held_out: Sequence[HeldOutSet]) -> str:
    section = config.evaluation
    sets = ", ".join(f"{len(one.sources):,} pairs of {one.name}" for one in held_out)
    metrics = ", ".join(metric.label() for metric in section.metrics)
    return f"{_when(section.every_updates)}: {sets}; {metrics}" if held_out else "none: no held-out set"


def show_summary(config: RunConfig, state: TrainerState, saved_step: int | None, *, is_finished: bool) -> None:
    """Log how far the run came, its best score, its files and the next commands.

    Args:
        config: the run's.
        state: at the end.
        saved_step: of the newest checkpoint; None if there is none.
        is_finished: False where somebody asked it to stop.
    """
    for name, text in _rows(config, state, saved_step, is_finished=is_finished):
        log_row(name, visible(text))


def _rows(
    config: RunConfig, state: TrainerState, saved_step: int | None, *, is_finished: bool
) -> Iterator[tuple[str, str]]:
    folder = Path(config.folder)
    yield "trained", f"{state.step:,} updates, {state.target_tokens:,} target tokens in {interval(state.seconds)}"
    last, best = last_and_best(config, state)
    if best is not None:
        yield "best", best if last == best else f"{best}; the last: {last}"
    if saved_step is not None:
        yield "weights", str(checkpoint_folder(folder, saved_step))
    yield "report", str(folder / REPORT)
    if not is_finished:
        yield "next", "the same command, but for --fresh and --reset, resumes it"
        return
    run = shlex.quote(config.folder)
    yield "next", f"zeromt translate {run} -i FILE -o FILE"
    yield "", f"zeromt export {run} --format safetensors -o DIR"
