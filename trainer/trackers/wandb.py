"""Weights & Biases: https://docs.wandb.ai. The package is optional: `pip install 'zeromt[wandb]'`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from configs.components import Tracker, Writer, component
from trainer.records.names import by_tag, of_event, start_name


@component("tracker", "wandb")
class WeightsAndBiases(Tracker):
    """A run of Weights & Biases for each start, in a group that has the run's name: its points cannot be taken back."""

    project: str = "zeromt"
    """Of Weights & Biases, that the run is shown in."""
    entity: str | None = None
    """The user or team whose project it is; unless given, the account's default."""
    mode: Literal["online", "offline"] = "online"
    """offline writes to `wandb/` in the run's folder, for `wandb sync`."""

    def open(self, folder: Path, *, config: Mapping[str, Any], resume_step: int) -> Writer:
        """See Tracker."""
        import wandb

        run = wandb.init(
            project=self.project,
            entity=self.entity,
            mode=self.mode,
            dir=str(folder),
            name=start_name(folder, resume_step),
            group=folder.name,
            config={**config, "resume_step": resume_step},
            reinit="create_new",
            settings=wandb.Settings(console="off", disable_git=True, disable_code=True, silent=True),
        )
        # Scores that come late belong to an earlier update: wandb's own step could only go on.
        run.define_metric("update")
        run.define_metric("*", step_metric="update")
        return _Writer(run)


class _Writer:
    """See Writer."""

    def __init__(self, run: Any) -> None:
        self._run = run

    def train(self, step: int, figures: Mapping[str, Any]) -> None:
        """See Writer."""
        self._run.log({**by_tag("train", figures), "update": step})

    def evaluation(
        self,
        step: int,
        figures: Mapping[str, Any],
        samples: Sequence[tuple[str, str, str]],
        attentions: Sequence[Any],
    ) -> None:
        """See Writer."""
        import wandb

        tables = {}
        if samples:
            columns = ["source", "reference", "translation"]
            tables["valid/translations"] = wandb.Table(columns=columns, data=[list(sample) for sample in samples])
        self._run.log({**by_tag("valid", figures), **tables, "update": step})

    def event(self, step: int, figures: Mapping[str, Any]) -> None:
        """See Writer."""
        if numbers := of_event(figures):
            self._run.log({**numbers, "update": step})

    def close(self) -> None:
        """See Writer."""
        self._run.finish()
