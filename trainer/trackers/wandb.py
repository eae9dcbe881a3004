"""Weights & Biases: https://docs.wandb.ai. The package is optional: `pip install 'zeromt[wandb]'`."""

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from configs.components import Samples, Tracker, Writer, component
from trainer.records.names import by_tag, of_event, start_name
from trainer.trackers.cockpit import SAMPLE, marked_samples

_lock = threading.Lock()
_unfinished: set[str] = set()
"""Runs of this process, which share a process of wandb's."""


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
        with _lock:
            _unfinished.add(run.id)
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

    def evaluation(self, step: int, figures: Mapping[str, Any], samples: Samples, attentions: Sequence[Any]) -> None:
        """See Writer."""
        import wandb

        from trainer.records.board import table

        tables = {}
        if samples:
            # Not wandb.Table: that leaves copies in the user's home folder, and where none can be written, it raises.
            tables["valid/translations"] = wandb.Html(table(SAMPLE, marked_samples(samples)), data_is_not_path=True)
        self._run.log({**by_tag("valid", figures), **tables, "update": step})

    def event(self, step: int, figures: Mapping[str, Any]) -> None:
        """See Writer."""
        if numbers := of_event(figures):
            self._run.log({**numbers, "update": step})

    def close(self) -> None:
        """See Writer."""
        import wandb

        self._run.finish()
        with _lock:
            _unfinished.discard(self._run.id)
            if not _unfinished:
                # wandb's own process writes the end of a run's file after `finish` has returned; this waits for it.
                wandb.teardown()
