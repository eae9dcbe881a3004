"""Log lines, plain everywhere. Programs parse the beginnings of those of training, which must not change."""

import logging
import sys
import warnings
from collections.abc import Mapping
from typing import Any

from typing_extensions import override

from configs import RunConfig
from configs.process.streams import hidden
from trainer.checkpoint.state import TrainerState
from trainer.evaluation.best import beside_best, described
from trainer.evaluation.outcome import Evaluation
from trainer.metrics.scoring import describe_scores
from trainer.records.interval import describe_datasets
from trainer.terminal.forecast import Outlook

log = logging.getLogger(__name__)


class PlainFormatter(logging.Formatter):
    """The message and its traceback, without values of environment variables in URLs."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        return hidden(super().format(record))


def configure_logging(rank: int) -> None:
    """Log this project's lines from rank 0, warnings from other ranks, and only errors of libraries.

    Lines that cannot be written (`| head`, a full disk) are dropped, and the run goes on.
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
    log.info("  %-13s %s", name, text)


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
    """Log a step's scores, compared with the best of the others, and those of each set if there are several.

    Args:
        step: updates done.
        evaluation: of its weights.
        config: the run's.
        state: with the scores of the other steps.
    """
    metrics, figures, beside = config.evaluation.metrics, evaluation.figures(), None
    if config.best_by in figures:  # otherwise it comes late
        scores, shown = state.scores.get(config.best_by, {}), described(config.evaluation, config.best_by)
        beside = beside_best(scores, step, figures[config.best_by], shown)
    log.info(
        "step %d  valid loss %.4f  nll %.4f  ppl(nll) %.2f  %s  (%s, %.1f s)%s%s",
        step,
        evaluation.loss,
        evaluation.nll,
        figures["perplexity"],
        describe_scores(evaluation.scores, metrics),
        next(iter(evaluation.scores.values())).signature,
        evaluation.seconds,
        f"  {beside}" if beside else "",
        f"  mean over {', '.join(evaluation.mean_over)}" if len(evaluation.mean_over) > 1 else "",
    )
    for name, part in evaluation.parts.items():
        role = "" if part.role == "validation" else f" ({part.role})"
        log.info("  %s%s: loss %.4f  %s", name, role, part.loss, describe_scores(part.scores, metrics))
