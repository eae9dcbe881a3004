"""TensorBoard: curves, translations and the configuration."""

import threading
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from typing_extensions import override

from configs.components import Samples, Tracker, Writer, component, make
from configs.process.text import to_json
from trainer.records.names import flatten, html_table, samples_table

HPARAMS = (
    "model.d_model", "model.encoder_layers", "model.decoder_layers", "model.dropout", "optimizer.kind", "optimizer.lr",
    "schedule.kind", "schedule.warmup_updates", "stream.micro_batches", "stream.target_tokens", "loss.label_smoothing",
    "training.max_updates", "seed",
)  # fmt: skip
"""The columns of the hyperparameter table; the last losses and scores follow them."""
CHARTS = {
    "learning": {
        "loss": ["train/loss$", "valid/loss$"],
        "perplexity": ["train/perplexity$", "valid/perplexity$"],
        "learning rate": ["train/lr$"],
        "gradient norm": ["train/grad_norm$"],
        "loss by dataset": ["train/loss/.*", "valid/loss/.*"],
    },
    "machine": {
        "target tokens per second": ["x_machine/tokens_per_second$"],
        "waiting for data, fraction of time": ["x_machine/waiting_for_data$"],
        "memory, GiB": ["x_machine/host_memory_.*", "x_machine/device_memory_.*"],
        "utilisation, percent": ["x_machine/.*_utilization$"],
    },
}
"""The custom scalars besides the scores: by category and title, regular expressions that select tags."""


@component("tracker", "tensorboard")
class TensorBoard(Tracker):
    """TensorBoard: event files in the run's folder; view them with `tensorboard --logdir runs`."""

    @override
    def open(self, folder: Path, *, config: Mapping[str, Any], resume_step: int) -> Writer:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from torch.utils.tensorboard import SummaryWriter
            from torch.utils.tensorboard.summary import hparams
        # Every start writes a file; from it a reader forgets what earlier files have of this step and later ones.
        first = resume_step + 1 if resume_step > 0 else 0
        hook = threading.excepthook  # its thread's errors are raised in ours, too
        threading.excepthook = lambda failed: None if _is_its_own(failed.thread) else hook(failed)
        board: Any = SummaryWriter(str(folder), purge_step=first)
        if config:
            board.add_text("run/configuration", html_table([(k, str(v)) for k, v in flatten(config).items()]), first)
        if first == 0:  # not add_hparams, which writes a file of its own, and scores that are not there yet
            *about, _end = hparams(*_hyperparameters(config))  # type: ignore[no-untyped-call]
            for summary in about:
                board.file_writer.add_summary(summary)
            board.add_custom_scalars(_layout(config))
        return _Writer(board, first, hook)


def _is_its_own(thread: threading.Thread | None) -> bool:
    return type(thread).__module__.startswith("tensorboard.")


def _titles(config: Mapping[str, Any]) -> dict[str, str]:
    """Titles of the scores by the tags of their figures."""
    section = config.get("evaluation", {})
    metrics = [make("metric", **fields) for fields in section.get("metrics", [])]
    titles = {f"valid/{metric.key()}": metric.label() for metric in metrics}
    return titles | {f"valid/{fields['name']}": fields["name"] for fields in section.get("queued", [])}


def _hyperparameters(config: Mapping[str, Any]) -> tuple[dict[str, bool | float | str], dict[str, float]]:
    """The values, and the tags of the other figures."""
    leaves = flatten(config)
    known = {key: value for key in HPARAMS if isinstance(value := leaves.get(key), bool | int | float | str)}
    return known, dict.fromkeys(["train/loss", "valid/loss", *_titles(config)], 0.0)


def _layout(config: Mapping[str, Any]) -> dict[str, dict[str, tuple[str, list[str]]]]:
    charts = {**CHARTS, "quality": {title: [f"{tag}(/.*)?$"] for tag, title in _titles(config).items()}}
    return {
        category: {title: ("Multiline", tags) for title, tags in of_category.items()}
        for category, of_category in charts.items()
    }


class _Writer(Writer):
    def __init__(self, board: Any, first: int, hook: Callable[[threading.ExceptHookArgs], Any]) -> None:
        """See the tracker; from step `first` on the next start's reader forgets what this one writes."""
        self._board, self._first, self._hook = board, first, hook

    @override
    def write(self, step: int, figures: Mapping[str, float], samples: Samples = ()) -> None:
        """Write figures, and flush: what a killed process has trained on before its checkpoint is not trained again.

        TensorBoard sorts groups by name. All but `train` and `valid` get an `x_`, so that what was learned comes first.
        """
        if samples:
            self._board.add_text("valid/translations", samples_table(samples), step)
        for tag, value in figures.items():
            self._board.add_scalar(tag if tag.startswith(("train/", "valid/")) else f"x_{tag}", value, step)
        self._board.flush()

    @override
    def event(self, step: int, figures: Mapping[str, Any]) -> None:
        rows = [(key, value if isinstance(value, str) else to_json(value)) for key, value in figures.items()]
        self._board.add_text(f"events/{figures.get('event', 'event')}", html_table(rows), max(step, self._first))
        self._board.flush()

    @override
    def close(self) -> None:
        try:
            self._board.close()
        finally:
            threading.excepthook = self._hook
