"""The table at the end of a run: its results, and what to do next."""

import logging
import shlex
from collections.abc import Iterator
from pathlib import Path

from configs import RunConfig
from configs.process.text import visible
from trainer.checkpoint.state import TrainerState
from trainer.evaluation.best import described
from trainer.inference.supported import CTRANSLATE2, ctranslate2_problems
from trainer.runs.layout import BOARD, METRICS_FILE, checkpoint_folder
from trainer.terminal.forecast import interval
from trainer.terminal.lines import log_row

log = logging.getLogger(__name__)


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
    if (scores := state.signed_scores()) and config.best_by in config.evaluation.directions:
        best, last = max(scores, key=lambda step: (scores[step], -step)), max(scores)
        shown = described(config.evaluation, config.best_by)
        others = f"; the last {state.scores[last]:.{shown.digits}f} at step {last:,}" if last != best else ""
        yield "best", f"{shown.label} {state.scores[best]:.{shown.digits}f} at step {best:,}{others}"
    if saved_step is not None:
        yield "weights", str(checkpoint_folder(folder, saved_step))
    board = f", {folder / BOARD}*" if config.training.tensorboard else ""
    yield "figures", f"{folder / METRICS_FILE}{board}"
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
    commands = [f"zeromt translate {run} -i FILE -o FILE", f"zeromt report {run}"]
    if config.training.tensorboard:
        commands.append(f"tensorboard --logdir {shlex.quote(config.output)}")  # TensorBoard names runs by their folders
    # the fastest format if it supports the model, else the one that supports every model
    name = "safetensors" if any(ctranslate2_problems(config.model)) else CTRANSLATE2
    return [*commands, f"zeromt export {run} --format {name} -o DIR"]
