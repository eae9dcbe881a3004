"""Weights & Biases: https://docs.wandb.ai. The package is optional: `pip install 'zeromt[wandb]'`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from typing_extensions import override

from configs.components import Samples, Tracker, Writer, component
from trainer.records.names import END_EVENT, samples_table, start_name


@component("tracker", "wandb")
class WeightsAndBiases(Tracker):
    """Weights & Biases: each start is a W&B run of its own, in one group, because logged points cannot be deleted."""

    project: str = "zeromt"
    """Name of the W&B project."""
    entity: str | None = None
    """User or team that owns the project; by default the account's own."""
    mode: Literal["online", "offline"] = "online"
    """online uploads the figures; offline writes them to `wandb/` in the run's folder, for a later `wandb sync`."""

    @override
    def open(self, folder: Path, *, config: Mapping[str, Any], resume_step: int) -> Writer:
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
        # Late scores belong to an earlier update, but wandb's own step can only increase: so plot over "update".
        run.define_metric("update")
        run.define_metric("*", step_metric="update")
        return _Writer(run)


class _Writer(Writer):
    def __init__(self, run: Any) -> None:
        self._run = run
        self._exit_code = 1  # of one that is dropped before the end

    @override
    def write(self, step: int, figures: Mapping[str, float], samples: Samples = ()) -> None:
        import wandb

        logged = {**figures, "update": step}
        if samples:
            # Not wandb.Table, which writes copies to the user's home folder and raises an error if it cannot.
            logged["valid/translations"] = wandb.Html(samples_table(samples), data_is_not_path=True)
        self._run.log(logged)

    @override
    def event(self, step: int, figures: Mapping[str, Any]) -> None:
        if figures.get("event") == END_EVENT:
            self._exit_code = figures["exit_code"]

    @override
    def close(self) -> None:
        import wandb

        self._run.finish(self._exit_code)
        wandb.teardown()  # its background process may still be writing when `finish` has returned
