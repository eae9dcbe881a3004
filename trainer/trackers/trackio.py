"""Trackio, of Hugging Face: https://huggingface.co/docs/trackio. The package is optional: `pip install trackio`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from configs.components import Samples, Tracker, Writer, component
from trainer.records.names import by_tag, of_event, start_name


@component("tracker", "trackio")
class Trackio(Tracker):
    """A run of Trackio for each start, in a group that has the run's name: its points cannot be taken back."""

    project: str = "zeromt"
    """Of Trackio, that the run is shown in."""
    space: str | None = None
    """A Space of Hugging Face, NAME or USER/NAME; unless given, the machine's own store (TRACKIO_DIR)."""

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
        if numbers := of_event(figures):
            self._run.log(numbers, step=step)

    def close(self) -> None:
        """See Writer."""
        self._run.finish()
