"""What a tracker of runs is: TensorBoard, and whatever a team watches its runs with."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from configs.components.registry import Component

Samples = Sequence[tuple[str, str, str]]
"""Source, reference and translation of some pairs."""


class Writer(Protocol):
    """Where a run's figures go, beside metrics.jsonl. One that raises is dropped with a warning; training goes on.

    Its methods are called one after the other in a thread of the writer's own, which training does not wait for: what a
    writer falls too far behind with is dropped, and said.
    """

    def train(self, step: int, figures: Mapping[str, Any]) -> None:
        """Figures of a log step, by the names that they have in metrics.jsonl."""
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
    """A place to watch runs in."""

    def open(self, folder: Path, *, config: Mapping[str, Any], resume_step: int) -> Writer:
        """Begin to write, or go on. Called in the writer's thread.

        Args:
            folder: of the run.
            config: the run's resolved configuration, as plain mappings.
            resume_step: of the checkpoint that the run goes on from; what was written of later steps is void.

        Raises:
            Exception: whatever is wrong; the run goes on without.
        """
        raise NotImplementedError
