"""metrics.jsonl and TensorBoard: the same figures, by step. Only rank 0 writes."""

import contextlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from configs.text import to_json
from trainer.board import Board
from trainer.heat_map import draw
from trainer.translation.words import Attention

log = logging.getLogger(__name__)

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
    "bleu": "valid/bleu",
    "chrf": "valid/chrf",
}
SAMPLE = ("source", "reference", "translation")


class Metrics(Protocol):
    """Where figures go."""

    def train(self, step: int, figures: Mapping[str, Any]) -> None:
        """Figures of a log step."""
        ...

    def evaluation(
        self,
        step: int,
        figures: Mapping[str, Any],
        samples: Sequence[tuple[str, str, str]],
        attentions: Sequence[Attention],
    ) -> None:
        """Scores, (source, reference, translation) samples, and attention to draw."""
        ...

    def event(self, step: int, figures: Mapping[str, Any]) -> None:
        """Something that happened, such as a skipped update."""
        ...

    def close(self) -> None:
        """Write out what is still held."""
        ...


class NoMetrics:
    """What every rank but the first has."""

    def train(self, step: int, figures: Mapping[str, Any]) -> None:
        """Nothing."""

    def evaluation(
        self,
        step: int,
        figures: Mapping[str, Any],
        samples: Sequence[tuple[str, str, str]],
        attentions: Sequence[Attention],
    ) -> None:
        """Nothing."""

    def event(self, step: int, figures: Mapping[str, Any]) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class RunMetrics:
    """Writes a run's figures. On resume, what was written after the checkpoint's step is cut away first."""

    def __init__(self, folder: Path, *, tensorboard: bool, resume_step: int) -> None:
        path = folder / "metrics.jsonl"
        cut_back(path, resume_step)
        self._file = path.open("a", encoding="utf-8", buffering=1)
        self._board = _open_board(folder / "tensorboard", resume_step) if tensorboard else None

    def train(self, step: int, figures: Mapping[str, Any]) -> None:
        """See Metrics."""
        self._write({"kind": "train", "step": step, **figures})
        self._scalars(step, figures, TRAIN_SCALARS)

    def evaluation(
        self,
        step: int,
        figures: Mapping[str, Any],
        samples: Sequence[tuple[str, str, str]],
        attentions: Sequence[Attention],
    ) -> None:
        """See Metrics."""
        self._write({"kind": "evaluation", "step": step, **figures})
        of_sets = {key: f"valid/{key}" for key in figures if "/" in key}
        self._scalars(step, figures, {**EVALUATION_SCALARS, **of_sets})
        if samples:
            self._on_board(lambda board: board.table(step, "valid/translations", SAMPLE, samples))
        for number, attention in enumerate(attentions, start=1):
            self._picture(step, f"valid/attention_{number}", attention)

    def event(self, step: int, figures: Mapping[str, Any]) -> None:
        """See Metrics."""
        self._write({"kind": "event", "step": step, **figures})

    def close(self) -> None:
        """See Metrics."""
        self._file.close()
        if self._board is not None:
            with contextlib.suppress(OSError):
                self._board.close()

    def _write(self, line: Mapping[str, Any]) -> None:
        try:
            self._file.write(to_json(line) + "\n")
        except OSError as error:
            log.warning("metrics.jsonl: %s", error)

    def _scalars(self, step: int, figures: Mapping[str, Any], tags: Mapping[str, str]) -> None:
        shown = {tag: float(figures[key]) for key, tag in tags.items() if figures.get(key) is not None}
        self._on_board(lambda board: board.scalars(step, shown))

    def _picture(self, step: int, tag: str, attention: Attention) -> None:
        self._on_board(lambda board: board.picture(step, tag, np.asarray(draw([attention]))))

    def _on_board(self, action: Callable[[Board], None]) -> None:
        """TensorBoard's folder may be full or unwritable; training goes on without it, and says so once."""
        if self._board is None:
            return
        try:
            action(self._board)
        except OSError as error:
            log.warning("TensorBoard is given up, training goes on: %s", error)
            self._board = None


def cut_back(path: Path, step: int) -> None:
    """Remove the lines of later steps, and a last line that was cut off."""
    if not path.exists():
        return
    kept = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        with contextlib.suppress(ValueError, KeyError, TypeError):
            if json.loads(line)["step"] <= step:
                kept.append(line + "\n")
    beside = path.with_name(path.name + ".tmp")
    beside.write_text("".join(kept), encoding="utf-8")
    beside.replace(path)


def _open_board(folder: Path, resume_step: int) -> Board | None:
    """None where the folder cannot be written."""
    try:
        return Board(folder, resume_step=resume_step)
    except OSError as error:
        log.warning("TensorBoard is left out, training goes on: %s", error)
        return None
