"""The tables at the start and at the end of a run: model, data, settings; results, and what to do next."""

import logging
import math
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from configs import RunConfig, Schedule
from configs.process.text import visible
from data_pipeline.order.windows import Budget, plan_window
from data_pipeline.stream.reader import StreamReader
from model import trained
from trainer.checkpoint.state import TrainerState
from trainer.datasets import describe_mixture, describe_weights
from trainer.engines.protocol import Engine
from trainer.evaluation.best import described, last_and_best
from trainer.evaluation.sets import HeldOutSet
from trainer.inference.supported import CTRANSLATE2, ctranslate2_problems
from trainer.ranks.device import describe_uneven, device_name, is_host, kind
from trainer.ranks.distributed import World
from trainer.runs.layout import BOARD, CHECKPOINTS, EVALUATIONS, LOGS, METRICS_FILE, PAIRS, REPORT, checkpoint_folder
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
    if not is_host(world.device) and (uneven := describe_uneven(config.stream.micro_batches, world.size)):
        log.warning("%s", uneven)
    num_parameters = sum(engine.parameter_sizes().values())
    updates = estimate_updates(config, reader)
    if not world.is_main:
        return Forecast(config, state, updates_an_epoch=updates)
    mixture = describe_mixture(reader.phase.datasets, reader.mixture, reader.usual_pairs)
    for line in [*mixture, *describe_weights(reader.phase)]:
        log.info("%s", line)
    log.info(
        "%d parameters, %d pairs, %d rank%s on %s, ZeRO-%d, %s",
        num_parameters,
        sum(d.num_pairs for d in reader.datasets),
        world.size,
        "s" * (world.size > 1),
        kind(world.device),
        config.engine.zero_stage,
        engine.precision,
    )
    if (said := describe_trained(engine)) is not None:
        log.info("%s", said)
    for line in trained.tied(config) if is_new else ():
        log.info("%s", line)
    if engine.why_padded:
        log.info("rows are padded: %s", engine.why_padded)
    if engine.merged_lanes > 1:
        log.info("a rank's micro-batches of an update go through the model %d at a time", engine.merged_lanes)
    if is_new:
        for warning in (unsaved_best(config), never_warm(config)):
            if warning is not None:
                log.warning("%s", warning)
        _show_table(config, reader, world, held_out, state, updates)
    return Forecast(config, state, updates_an_epoch=updates)


def describe_trained(engine: Engine) -> str | None:
    """How many parameters are trained, where some are not."""
    sizes, names = engine.parameter_sizes(), engine.trained.keys()
    if names == sizes.keys():
        return None
    number, total = sum(sizes[name] for name in names), sum(sizes.values())
    return (
        f"{number:,} of {total:,} parameters ({number / total:.1%}) are trained, in {len(names)} of {len(sizes)} "
        "tensors; the others are frozen"
    )


def _show_table(
    config: RunConfig,
    reader: StreamReader,
    world: World,
    held_out: Sequence[HeldOutSet],
    state: TrainerState,
    updates: float,
) -> None:
    """Log the rows; `updates` is the estimated number per epoch."""
    pieces = reader.datasets[0].index.tokenizer
    rows = {
        "model": describe_model(config),
        "vocabulary": f"{pieces.source_vocab_size:,} pieces of the source, {pieces.target_vocab_size:,} of the target; "
        f"tied embeddings: {config.model.tied_embeddings}",
        "data": "; ".join(f"{d.num_pairs:,} pairs of {d.location}" for d in reader.datasets),
        **({"phases": "; ".join(describe_phases(config))} if config.phases else {}),
        "an update": _update(config, reader, updates),
        "an epoch": f"about {updates:,.0f} updates",
        "schedule": f"{describe_schedule(config.schedule, config)}{_surprises(config)}; {config.optimizer.kind}",
        "limits": ", ".join(_limits(config, state)),
        "evaluation": _evaluation(config, held_out),
        "checkpoints": _checkpoints(config),
        "devices": f"{world.size} x {device_name(world.device)}",
        "written to": f"{config.folder}: {', '.join(_written(config))}",
    }
    for name, text in rows.items():
        log_row(log, name, visible(text))


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
    """Layers, widths, and the kind of every part."""
    model = config.model
    parts = {
        "attention": model.attention,
        "feed-forward": model.feed_forward,
        "positions": model.positions,
        "norm": model.norm,
        "residual": model.residual,
    }
    kinds = ", ".join(f"{name} {part.kind}" for name, part in parts.items())
    layers = f"{model.encoder_layers} + {model.decoder_layers} layers of d_model {model.d_model}"
    more = [f"{heads} heads"] if (heads := getattr(model.attention, "num_heads", None)) else []
    more += [f"d_ff {width}"] if (width := getattr(model.feed_forward, "d_ff", None)) else []
    return ", ".join([layers, *more, kinds])


def _update(config: RunConfig, reader: StreamReader, updates: float) -> str:
    stream, mixture = config.stream, reader.mixture
    tokens = 0.0
    for dataset, proportion in zip(reader.phase.datasets, mixture.proportions, strict=True):
        mean = 1 + dataset.index.target_tokens / max(dataset.num_pairs, 1)
        tokens += float(proportion / sum(mixture.proportions)) * sum(mixture.sizes) * mean
    return (
        f"{stream.micro_batches} micro-batch{'es' * (stream.micro_batches > 1)} of up to {stream.source_tokens:,} "
        f"source and {stream.target_tokens:,} target tokens with padding; about {tokens / updates:,.0f} target tokens"
    )


def describe_phases(config: RunConfig) -> Iterator[str]:
    """What each phase reads, and until when."""
    for phase, stream in zip(config.phases, config.streams, strict=True):
        read = ", ".join(source.path for source in stream.datasets) or config.prepare.output
        end = "to the end" if phase.until is None else phase.until.describe()
        own = "" if phase.schedule is None else f", schedule {describe_schedule(phase.schedule, config)}"
        yield f"{phase.name}: {end}, of {read}{own}"


def describe_schedule(schedule: Schedule, config: RunConfig) -> str:
    """Kind, warm-up, highest rate, and what its end comes with."""
    unit = "limit that comes first" if schedule.ends_with == "first" else schedule.ends_with
    end = f", to its end with the {unit}" if schedule.ends else ""
    return f"{schedule.kind}, {schedule.length('warmup'):,} {schedule.counts} up to {config.optimizer.lr:g}{end}"


def _surprises(config: RunConfig) -> str:
    """What may end the run before the schedule, and nobody can know when."""
    section, untils = config.training, [phase.until for phase in config.phases]
    surprises = ["training.early_stopping"] if section.early_stopping is not None else []
    if section.max_target_tokens is not None and not config.schedule.ends_by("tokens"):
        surprises.append("training.max_target_tokens")
    if section.max_minutes is not None and not config.schedule.ends_by("minutes"):
        surprises.append("training.max_minutes")
    if untils and None not in untils and any(until is not None and until.updates is None for until in untils):
        surprises.append("the last phase")
    return f", unless {' or '.join(surprises)} ends the run before" if surprises and config.schedule.ends else ""


def unsaved_best(config: RunConfig) -> str | None:
    """A warning if the best score may be of a step without a checkpoint; else None."""
    scored, saved = config.evaluation.every_updates, config.checkpoint.every_updates
    if (
        not config.checkpoint.keep_best
        or not 0 < scored < config.training.max_updates
        or (saved and not scored % saved)
    ):
        return None
    fault, other = f"with checkpoint.every_updates={saved}, which saves at the end alone", ""
    if saved:
        fault = f"is no multiple of checkpoint.every_updates={saved}"
        other = f"evaluation.every_updates={-(-scored // saved) * saved} or "
    return (
        f"evaluation.every_updates={scored} {fault}, so the best step may have no checkpoint; set "
        f"{other}checkpoint.every_updates={scored}"
    )


def never_warm(config: RunConfig) -> str | None:
    """A warning if the run ends before the rate is at its peak; else None."""
    warmup, most = config.schedule.warmup_updates, config.training.max_updates
    if config.schedule.counts != "updates" or warmup <= most:
        return None
    return (
        f"schedule.warmup_updates={warmup} is above training.max_updates={most}, so the rate ends at "
        f"{most / warmup:.1%} of optimizer.lr; set schedule.warmup_updates to {max(most // 10, 1)} or so"
    )


def _limits(config: RunConfig, state: TrainerState) -> Iterator[str]:
    section = config.training
    yield f"{section.max_updates:,} updates"
    if section.max_target_tokens is not None:
        yield f"{section.max_target_tokens:,} target tokens"
    if section.max_epochs is not None:
        yield f"{section.max_epochs:,} epochs"
    if section.max_minutes is not None:
        yield f"{section.max_minutes:g} minutes"
    if (stopping := section.early_stopping) is not None:
        figure = stopping.metric or config.best_by
        yield f"{stopping.patience} evaluations without a better {described(config.evaluation, figure).label}"
    if state.start_step:
        yield f"counted from step {state.start_step:,}"
    if state.step:
        yield f"begins at step {state.step:,}"


def _evaluation(config: RunConfig, held_out: Sequence[HeldOutSet]) -> str:
    section = config.evaluation
    if not held_out:
        return "none: no held-out set"
    when = f"every {section.every_updates:,} updates and at the end" if section.every_updates else "at the end"
    most = section.max_pairs or sys.maxsize
    sets = ", ".join(f"{min(len(one.sources), most):,} pairs of {one.name}" for one in held_out)
    search = f"beam {section.search.beam}" if section.search.sampler is None else section.search.sampler.kind
    return f"{when}: {sets}; {', '.join(metric.label() for metric in section.metrics)}; {search}"


def _checkpoints(config: RunConfig) -> str:
    section = config.checkpoint
    when = f"every {section.every_updates:,} updates and at the end" if section.every_updates else "at the end"
    best = f", the best {section.keep_best} by {described(config.evaluation, config.best_by).label}"
    every = f", every {section.keep_every:,}th" if section.keep_every else ""
    return f"{when}; kept: the last {section.keep_last}{best if section.keep_best else ''}{every}"


def _written(config: RunConfig) -> Iterator[str]:
    yield f"{METRICS_FILE} (figures)"
    yield f"{CHECKPOINTS}/"
    yield f"{EVALUATIONS}/ (translations)"
    if config.training.tensorboard:
        yield f"{BOARD}*"
    yield from (tracker.kind for tracker in config.trackers)
    if config.training.record_pairs:
        yield f"{PAIRS}/"
    yield f"{LOGS}/"


def show_summary(config: RunConfig, state: TrainerState, saved_step: int | None, *, is_finished: bool) -> None:
    """Print how far the run came, its best score, its files and the next commands.

    Args:
        config: the run's.
        state: at the end.
        saved_step: of the newest checkpoint; None if there is none.
        is_finished: False where somebody asked it to stop.
    """
    for name, text in _rows(config, state, saved_step, is_finished=is_finished):
        log_row(log, name, visible(text))


def _rows(
    config: RunConfig, state: TrainerState, saved_step: int | None, *, is_finished: bool
) -> Iterator[tuple[str, str]]:
    folder = Path(config.folder)
    skipped = f", {state.skipped_updates:,} of them skipped" if state.skipped_updates else ""
    yield (
        "trained",
        f"{state.step:,} updates{skipped}, {state.target_tokens:,} target tokens in {interval(state.seconds)}",
    )
    section, done, seconds = config.training, state.step - state.start_step, state.seconds - state.start_seconds
    if is_finished and section.max_minutes and done < section.max_updates and seconds > 60 * section.max_minutes:
        needed = math.ceil(1.1 * seconds / 60 * section.max_updates / max(done, 1))
        yield (
            "short of",
            f"{section.max_updates:,} updates, as training.max_minutes={section.max_minutes:g} ended it; the same "
            f"command with training.max_minutes={needed} goes on",
        )
    last, best = last_and_best(config, state)
    if best is not None:
        yield "best", best if last == best else f"{best}; the last: {last}"
    if saved_step is not None:
        yield "weights", str(checkpoint_folder(folder, saved_step))
    board = f", {folder / BOARD}*" if config.training.tensorboard else ""
    yield "figures", f"{folder / METRICS_FILE}{board}"
    yield "report", str(folder / REPORT)
    for number, command in enumerate(next_commands(config, is_finished=is_finished)):
        yield "" if number else "next", command


def next_commands(config: RunConfig, *, is_finished: bool) -> list[str]:
    """Complete commands that a user may want to run after training.

    Args:
        config: the run's.
        is_finished: False where somebody asked it to stop.
    """
    if not is_finished:
        return ["the same command, but for --fresh and --reset, resumes it"]
    run = shlex.quote(config.folder)
    commands = [f"zeromt translate {run} -i FILE -o FILE", f"zeromt evaluate {run}"]
    if config.training.tensorboard:
        commands.append(f"tensorboard --logdir {shlex.quote(config.output)}")  # TensorBoard names runs by their folders
    # the fastest format if it supports the model, else the one that supports every model
    name = "safetensors" if any(ctranslate2_problems(config.model)) else CTRANSLATE2
    return [*commands, f"zeromt export {run} --format {name} -o DIR"]
