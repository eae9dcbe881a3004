"""The base class of trackers of runs, such as TensorBoard."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from configs.components.registry import Component

Samples = Sequence[tuple[str, str, str]]
"""Source, reference and translation of some pairs."""


class Writer(Protocol):
    """Where a run's figures go, beside metrics.jsonl. One that raises is dropped with a warning; training goes on.

    Its methods are called one after the other in the writer's own thread, for which training does not wait: if a writer
    falls too far behind, records are dropped with a warning.
    """

    def train(self, step: int, figures: Mapping[str, Any]) -> None:
        """Figures of a log step, by their names in metrics.jsonl."""
        ...

    def evaluation(self, step: int, figures: Mapping[str, Any], samples: Samples, attentions: Sequence[Any]) -> None:
        """Scores; samples of source, reference and translation; attention to draw (`heat_map.draw`)."""
        ...

    def event(self, step: int, figures: Mapping[str, Any]) -> None:
        """Something that happened, such as a checkpoint, a skipped update or a rewind."""
        ...

    def close(self) -> None:
        """Write out what is still held; of a writer that has raised, too."""
        ...


@dataclasses.dataclass(kw_only=True, frozen=True)
class Tracker(Component):
    """A tracker of runs."""

    def open(self, folder: Path, *, config: Mapping[str, Any], resume_step: int) -> Writer:
        """Start writing, or continue. Called in the writer's thread.

        Args:
            folder: of the run.
            config: the run's resolved configuration, as plain mappings.
            resume_step: of the checkpoint that the run resumes from; records of later steps are void.

        Raises:
            Exception: any error; the run goes on without the tracker.
        """
        raise NotImplementedError
