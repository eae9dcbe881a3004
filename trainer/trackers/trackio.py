"""Hugging Face's Trackio: https://huggingface.co/docs/trackio. The package is optional: `pip install trackio`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from configs.components import Samples, Tracker, Writer, component
from trainer.records.names import by_tag, event_by_tag, start_name


@component("tracker", "trackio")
class Trackio(Tracker):
    """Trackio: each start is a Trackio run of its own, in one group, because logged points cannot be deleted."""

    project: str = "zeromt"
    """Name of the Trackio project."""
    space: str | None = None
    """Hugging Face Space that stores the figures, NAME or USER/NAME; by default a local folder (TRACKIO_DIR)."""

    def open(self, folder: Path, *, config: Mapping[str, Any], resume_step: int) -> Writer:
        """See Tracker."""
        import trackio

        run = trackio.init(
            project=self.project,
            name=start_name(folder, resume_step),
            group=folder.name,
            space_id=self.space,
            config={**config, "resume_step": resume_step},
            resume="never",
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )
        return _Writer(run)


class _Writer:
    """See Writer."""

    def __init__(self, run: Any) -> None:
        self._run = run

    def train(self, step: int, figures: Mapping[str, Any]) -> None:
        """See Writer."""
        self._run.log(by_tag("train", figures), step=step)

    def evaluation(self, step: int, figures: Mapping[str, Any], samples: Samples, attentions: Sequence[Any]) -> None:
        """See Writer."""
        import pandas
        import trackio

        found: dict[str, Any] = dict(by_tag("valid", figures))
        if samples:
            table = pandas.DataFrame(samples, columns=["source", "reference", "translation"])
            found["valid/translations"] = trackio.Table(dataframe=table)
        self._run.log(found, step=step)

    def event(self, step: int, figures: Mapping[str, Any]) -> None:
        """See Writer."""
        if numbers := event_by_tag(figures):
            self._run.log(numbers, step=step)

    def close(self) -> None:
        """See Writer."""
        self._run.finish()
