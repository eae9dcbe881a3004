"""The base class of trackers, such as TensorBoard."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from configs.components.registry import Component

Samples = Sequence[tuple[str, str, str]]
"""Source, reference and translation of some pairs."""


class Writer(Protocol):
    """Writes a run's figures to a tracker. A writer that raises an error is dropped with a warning; training goes on.

    Its methods are called one after the other in the writer's own thread. Training does not wait for them: if a writer
    falls too far behind, records are dropped with a warning.
    """

    def train(self, step: int, figures: Mapping[str, Any]) -> None:
        """Write the figures of a log step, given by their names in metrics.jsonl."""
        ...

    def evaluation(self, step: int, figures: Mapping[str, Any], samples: Samples, attentions: Sequence[Any]) -> None:
        """Write the scores of an evaluation, sample translations, and attention to draw (`heat_map.draw`)."""
        ...

    def event(self, step: int, figures: Mapping[str, Any]) -> None:
        """Write something that happened, such as a checkpoint, a skipped update or a rewind.

        The last is `end`, with the start's `outcome` (finished, stopped, failed or refused), `exit_code` and `reason`.
        """
        ...

    def close(self) -> None:
        """Flush and close; also called after another method has raised an error."""
        ...


@dataclasses.dataclass(kw_only=True, frozen=True)
class Tracker(Component):
    """A tracker of runs."""

    def open(self, folder: Path, *, config: Mapping[str, Any], resume_step: int) -> Writer:
        """Open a writer for a new or resumed run. Called in the writer's thread.

        Args:
            folder: the run's folder.
            config: the run's resolved configuration as plain mappings.
            resume_step: step of the checkpoint that the run resumes from, or 0; records of later steps are invalid.

        Raises:
            Exception: any error; training goes on without the tracker.
        """
        raise NotImplementedError
