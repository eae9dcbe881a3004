"""TensorBoard: curves, translations, attention maps and the configuration."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from typing_extensions import override

from configs.components import Samples, Tracker, Writer, component
from configs.process.text import to_json
from trainer.records.names import END_EVENT, TARGET_TOKENS, by_tag, event_by_tag
from trainer.trackers import dashboard
from trainer.trackers.dashboard import BY_TOKENS

FINAL = ("valid/loss", "valid/nll", "train/loss", "x_machine/tokens_per_second")
"""Tags whose last values are shown in the hyperparameter table, after the scores."""


@component("tracker", "tensorboard")
class TensorBoard(Tracker):
    """TensorBoard: an event file in the run's folder; view it with `tensorboard --logdir runs`."""

    @override
    def open(self, folder: Path, *, config: Mapping[str, Any], resume_step: int) -> Writer:
        from trainer.records.board import Board

        return BoardWriter(Board(folder, resume_step=resume_step), config, resume_step)


class BoardWriter(Writer):
    """Writes scalars, texts and pictures to TensorBoard's files."""

    def __init__(self, board: Any, config: Mapping[str, Any], resume_step: int) -> None:
        self._board = board
        self._events: set[tuple[str, int]] = set()
        self._outcome = ""
        self._seen: set[str] = set()  # tags that have had another value than 0
        metrics = dashboard.metric_titles(config)
        self._second_axis = {*dashboard.SECOND_AXIS, *metrics}
        board.layout(dashboard.layout(config, is_resumed=resume_step > 0))
        shown = {f"valid/{metric}": title for metric, title in metrics.items()} | {tag: tag for tag in FINAL}
        self._end = board.hyperparameters(dashboard.hyperparameters(config), shown)
        if config:
            board.table_once_per_run("run/configuration", ("field", "value"), dashboard.settings(config))
        board.table_once_per_run("run/environment", ("what", "is"), dashboard.environment())
        if resume_step > 0:
            board.table(resume_step, "events/start", ("what", "is"), dashboard.environment())

    @override
    def train(self, step: int, figures: Mapping[str, Any]) -> None:
        self._scalars(step, by_tag("train", figures), figures)

    @override
    def evaluation(self, step: int, figures: Mapping[str, Any], samples: Samples, attentions: Sequence[Any]) -> None:
        import numpy as np

        from model.search.alignment import default_layer
        from trainer.inference.translation.heat_map import draw

        self._scalars(step, by_tag("valid", figures), figures)
        if samples:
            self._board.table(step, "valid/translations", dashboard.SAMPLE, dashboard.marked_samples(samples))
        for number, attention in enumerate(attentions):
            # one layer, because a picture of all layers would be too small to read
            picture = draw([attention], layer=default_layer(len(attention.weights)))
            of = "reference" if attention.is_reference else "translation"
            self._board.image(step, f"valid/attention_{number // 2 + 1}/{of}", np.asarray(picture))

    @override
    def event(self, step: int, figures: Mapping[str, Any]) -> None:
        name = figures.get("event", "event")
        if (name, step) in self._events:  # such as a save that is retried, or several updates skipped at once
            return
        self._events.add((name, step))
        if name == END_EVENT:
            self._outcome = figures["outcome"]
        if numbers := event_by_tag(figures):
            self._scalars(step, numbers, {})
        else:
            rows = [(key, value if isinstance(value, str) else to_json(value)) for key, value in figures.items()]
            self._board.table(step, f"events/{name}", ("what", "is"), rows)

    @override
    def close(self) -> None:
        try:
            self._end(self._outcome)
        finally:  # the disk may be full
            self._board.close()

    def _scalars(self, step: int, by_tag: Mapping[str, float], figures: Mapping[str, Any]) -> None:
        """Write figures; of those that are no score, none that has only been 0: what never happened has no curve."""
        self._seen |= {tag for tag, value in by_tag.items() if value or tag.startswith("valid/")}
        drawn = {dashboard.shown_as(tag): value for tag, value in by_tag.items() if tag in self._seen}
        self._board.scalars(step, {tag: value for tag, value in drawn.items() if tag is not None})
        if (tokens := figures.get(TARGET_TOKENS)) is not None:
            on_both = {f"{BY_TOKENS}{tag}": v for tag, v in by_tag.items() if tag.split("/", 1)[1] in self._second_axis}
            self._board.scalars(step, on_both, x=int(tokens))
