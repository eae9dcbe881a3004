"""TensorBoard: curves, translations, attention."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from configs.components import Tracker, Writer, component
from configs.components.metric import metric_keys
from trainer.runs.layout import BOARD

TRAIN_SCALARS = {
    "loss": "train/loss",
    "nll": "train/nll",
    "perplexity": "train/perplexity",
    "lr": "train/learning_rate",
    "grad_norm": "train/gradient_norm",
    "tokens_per_second": "train/tokens_per_second",
    "padding": "train/padding_share",
    "empty_micro_batches": "train/empty_micro_batches",
    "skipped_updates": "train/skipped_updates",
    "goodput": "train/goodput",
    "update_seconds_p95": "train/update_seconds_p95",
    "epoch": "train/epoch",
}
EVALUATION_SCALARS = {
    "loss": "valid/loss",
    "nll": "valid/nll",
    "perplexity": "valid/perplexity",
}
SAMPLE = ("source", "reference", "translation")


@component("tracker", "tensorboard")
class TensorBoard(Tracker):
    """Event files in the run's folder; `tensorboard --logdir runs` shows them."""

    def open(self, folder: Path, *, config: Mapping[str, Any], resume_step: int) -> Writer:
        """See Tracker."""
        from trainer.records.board import Board

        return BoardWriter(Board(folder / BOARD, resume_step=resume_step))


class BoardWriter:
    """See Writer."""

    def __init__(self, board: Any) -> None:
        self._board = board

    def train(self, step: int, figures: Mapping[str, Any]) -> None:
        """See Writer."""
        of_datasets = {key: f"train/{key}" for key in figures if "/" in key}
        self._scalars(step, figures, {**TRAIN_SCALARS, **of_datasets})

    def evaluation(
        self,
        step: int,
        figures: Mapping[str, Any],
        samples: Sequence[tuple[str, str, str]],
        attentions: Sequence[Any],
    ) -> None:
        """See Writer."""
        import numpy as np

        from trainer.inference.translation.heat_map import draw

        of_sets = [key for key in figures if "/" in key]
        scores = {key: f"valid/{key}" for key in (*metric_keys(figures), *of_sets)}
        self._scalars(step, figures, {**EVALUATION_SCALARS, **scores})
        if samples:
            self._board.table(step, "valid/translations", SAMPLE, samples)
        for number, attention in enumerate(attentions, start=1):
            self._board.picture(step, f"valid/attention_{number}", np.asarray(draw([attention])))

    def event(self, step: int, figures: Mapping[str, Any]) -> None:
        """Nothing: events stand in metrics.jsonl."""

    def close(self) -> None:
        """See Writer."""
        self._board.close()

    def _scalars(self, step: int, figures: Mapping[str, Any], tags: Mapping[str, str]) -> None:
        shown = {tag: float(figures[key]) for key, tag in tags.items() if figures.get(key) is not None}
        self._board.scalars(step, shown)
