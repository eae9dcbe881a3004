"""What a user reads: log lines, the tables at the start and the end, and the progress bar.

Programs parse the beginnings of the lines of training, which must not change.
"""

import contextlib
import logging
import shlex
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm
from typing_extensions import override

from configs import RunConfig, Schedule
from configs.data import UntilSection
from configs.process.streams import hidden, is_live, unfiltered
from configs.process.text import visible
from data_pipeline.order.windows import Budget, plan_window
from data_pipeline.stream.reader import StreamReader
from model import trained
from trainer.checkpoint.state import TrainerState
from trainer.engines import Engine
from trainer.evaluation.scores import Evaluation, last_and_best
from trainer.evaluation.sets import HeldOutSet
from trainer.limits import Outlook, interval
from trainer.metrics.scoring import describe_scores
from trainer.ranks.device import device_name, kind
from trainer.ranks.distributed import World
from trainer.records.interval import describe_datasets
from trainer.runs.layout import REPORT, checkpoint_folder

log = logging.getLogger(__name__)

SAMPLED_PAIRS = 8192
"""Number of pairs from which micro-batches are estimated."""
SECONDS_BETWEEN = 0.5
"""Two pictures of the bar."""


class PlainFormatter(logging.Formatter):
    """The message and its traceback, without values of environment variables in URLs."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        return hidden(super().format(record))


def configure_logging(rank: int) -> None:
    """Log this project's lines from rank 0, warnings from other ranks, and only errors of libraries.

    Lines that cannot be written (`| head`, a full disk) are dropped, and the run continues.
    """
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(PlainFormatter("%(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.raiseExceptions = False
    logging.getLogger("trainer").setLevel(logging.INFO if rank == 0 else logging.WARNING)
    warnings.filterwarnings("ignore", category=FutureWarning, module="torch")
    warnings.filterwarnings("ignore", category=UserWarning, module="torch")


def log_row(name: str, text: str) -> None:
    """Log a row of a table: a name and its value."""
    log.info("  %-13s %s", name, visible(text))


def log_step(step: int, epoch: int, figures: Mapping[str, Any], outlook: Outlook) -> None:
    """Log the figures since the last such line, and the progress."""
    log.info(
        "step %d  epoch %d  loss %.4f  nll %.4f  ppl(nll) %.2f  norm %.2f  lr %.2e  %.0f tok/s  padding %.1f%%%s  %s",
        step,
        epoch,
        figures["loss"],
        figures["nll"],
        figures["perplexity"],
        figures["grad_norm"],
        figures["lr"],
        figures["tokens_per_second"],
        100 * figures["padding"],
        f"  phase {figures['phase']}" if "phase" in figures else "",
        outlook,
    )
    if (parts := describe_datasets(figures)) is not None:
        log.info("  %s", parts)


def log_evaluation(step: int, evaluation: Evaluation, config: RunConfig, state: TrainerState) -> None:
    """Log a step's scores, the best so far, and the scores of each set if there are several.

    Args:
        step: updates done.
        evaluation: of its weights.
        config: the run's.
        state: with the scores of this step and the others.
    """
    metrics, (last, best) = config.evaluation.metrics, last_and_best(config, state)
    log.info(
        "step %d  valid loss %.4f  nll %.4f  ppl(nll) %.2f  %s  (%.1f s)%s%s",
        step,
        evaluation.loss,
        evaluation.nll,
        evaluation.figures()["perplexity"],
        describe_scores(evaluation.scores, metrics),
        evaluation.seconds,
        "" if best is None else "  the best so far" if best == last else f"  the best: {best}",
        f"  mean over {', '.join(evaluation.mean_over)}" if len(evaluation.mean_over) > 1 else "",
    )
    for name, part in evaluation.parts.items():
        role = "" if part.role == "validation" else f" ({part.role})"
        log.info("  %s%s: loss %.4f  %s", name, role, part.loss, describe_scores(part.scores, metrics))


def announce(
    config: RunConfig,
    reader: StreamReader,
    engine: Engine,
    world: World,
    held_out: Sequence[HeldOutSet],
    *,
    updates_an_epoch: float,
) -> None:
    """Log the table at the start, and warnings of what the run may end without.

    Args:
        config: the run's.
        reader: of the run's datasets.
        engine: with the run's model.
        world: the ranks.
        held_out: the sets to evaluate on.
        updates_an_epoch: about.
    """
    section, scored = config.evaluation, "none: no held-out set"
    if held_out:
        sets = ", ".join(f"{len(one.sources):,} pairs of {one.name}" for one in held_out)
        metrics = ", ".join(metric.label() for metric in section.metrics)
        signature = next(iter(held_out[0].scorer.signatures.values()), "")
        scored = f"{_when(section.every_updates)}: {sets}; {metrics} ({signature})"
    for line in trained.tied(config):
        log.info("%s", line)
    for warning in warnings_of(config):
        log.warning("%s", warning)
    ranks = f"{world.size} rank{'s' * (world.size > 1)} on {kind(world.device)}, {device_name(world.device)}"
    sizes = engine.parameter_sizes()
    total, number = sum(sizes.values()), sum(sizes[name] for name in engine.trained)
    rows = {
        "model": describe_model(config),
        "parameters": f"{total:,}" + (f", {number:,} ({number / total:.1%}) are trained" if number < total else ""),
        "devices": f"{ranks}, ZeRO-{config.engine.zero_stage}, {engine.precision}",
        "data": "; ".join(_data(reader)),
        "an update": describe_update(config) + (f"; rows are padded: {why}" if (why := engine.why_padded) else ""),
        "an epoch": f"about {updates_an_epoch:,.0f} updates",
        "phases": "; ".join(describe_phases(config)),
        "schedule": describe_schedule(config.schedule, config),
        "evaluation": scored,
        "checkpoints": f"{_when(config.checkpoint.every_updates)}; the last {config.checkpoint.keep_last} are kept",
        "written to": config.folder,
    }
    for name, text in rows.items():
        if text:
            log_row(name, text)


def estimate_updates(config: RunConfig, reader: StreamReader) -> float:
    """Updates of an epoch: as planned for a mixture, else estimated from a sample of micro-batches."""
    if not reader.mixture.is_single:
        return reader.mixture.epoch_updates(0, [plan.usual_pairs for plan in reader.phase.plans])
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
    for phase, stream in zip(config.phases, config.streams, strict=False):
        read = ", ".join(source.path for source in stream.datasets) or config.prepare.output
        end = "to the end" if phase.until is None else _describe_until(phase.until)
        yield f"{phase.name}: {end}, of {read}"


def _describe_until(until: UntilSection) -> str:
    if (plateau := until.plateau) is not None:
        return f"until {plateau.patience:,} evaluation{'s are' if plateau.patience > 1 else ' is'} no better"
    return f"{until.updates:,} updates" if until.updates else f"{until.passes:,} pass{'es' * (until.passes != 1)}"


def describe_schedule(schedule: Schedule, config: RunConfig) -> str:
    """Kind, warm-up, highest rate, what its end comes with, and the optimizer."""
    end = f", to its end with the {schedule.ends_with} limit" if schedule.ends else ""
    warmup = f"{schedule.warmup_updates:,} updates up to {config.optimizer.lr:g}"
    return f"{schedule.kind}, {warmup}{end}; {config.optimizer.kind}"


def warnings_of(config: RunConfig) -> Iterator[str]:
    """What a run may end without: a checkpoint of its best step, a rate at its peak."""
    scored, saved = config.evaluation.every_updates, config.checkpoint.every_updates
    warmup, most = config.schedule.warmup_updates, config.training.max_updates
    if config.checkpoint.keep_best and 0 < scored < most and (not saved or scored % saved):
        yield (
            f"evaluation.every_updates={scored} is not a multiple of checkpoint.every_updates={saved}, so the best "
            f"step may have no checkpoint; set checkpoint.every_updates={scored}"
        )
    if warmup > most:
        yield (
            f"schedule.warmup_updates={warmup} is above training.max_updates={most}, so the rate ends at "
            f"{most / warmup:.1%} of optimizer.lr; set schedule.warmup_updates to {max(most // 10, 1)} or so"
        )


def _when(every: int) -> str:
    return f"every {every:,} updates and at the end" if every else "at the end"


def show_summary(config: RunConfig, state: TrainerState, saved_step: int | None, *, is_finished: bool) -> None:
    """Log how far the run came, its best score, its files and the next commands.

    Args:
        config: the run's.
        state: at the end.
        saved_step: of the newest checkpoint; None if there is none.
        is_finished: False where somebody asked it to stop.
    """
    folder, run, (last, best) = Path(config.folder), shlex.quote(config.folder), last_and_best(config, state)
    log_row("trained", f"{state.step:,} updates, {state.target_tokens:,} target tokens in {interval(state.seconds)}")
    if best is not None:
        log_row("best", best if last == best else f"{best}; the last: {last}")
    if saved_step is not None:
        log_row("weights", str(checkpoint_folder(folder, saved_step)))
    log_row("report", str(folder / REPORT))
    if is_finished:
        log_row("next", f"zeromt translate {run} -i FILE -o FILE")
        log_row("", f"zeromt export {run} --format ctranslate2 -o DIR")
    else:
        log_row("next", "the same command (without --fresh or --reset) resumes it")


@contextlib.contextmanager
def bar_shown(view: Callable[[], tuple[str | None, Outlook]], *, is_main: bool) -> Iterator[None]:
    """Show a bar on rank 0 until the block ends, if there is a terminal for it.

    A thread draws it from state that the loop keeps anyway, also while a step, a save or an evaluation takes long.

    Args:
        view: what the run does now, if anything, and how far it has come.
        is_main: whether this is rank 0.
    """
    if not is_main or not is_live(sys.stderr):
        yield
        return
    is_over = threading.Event()

    def draw() -> None:
        while not is_over.wait(SECONDS_BETWEEN):
            activity, outlook = view()
            said = [activity or "step", outlook.share]
            if outlook.seconds_per_update is not None and outlook.seconds_left is not None:
                said += [f"{outlook.seconds_per_update:.3g} s/update", f"{interval(outlook.seconds_left)} left"]
            bar.n = outlook.fraction
            bar.set_description_str("  ".join(said))

    redirected = logging_redirect_tqdm() if is_live(sys.stdout) else contextlib.nullcontext()
    layout, file = "{percentage:3.0f}% |{bar}| {desc}", unfiltered(sys.stderr)
    with tqdm(total=1.0, bar_format=layout, dynamic_ncols=True, leave=False, file=file) as bar, redirected:
        thread = threading.Thread(target=draw, name="bar", daemon=True)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()
