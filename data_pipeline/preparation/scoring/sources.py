"""Where the scores of pairs come from, and those of a chunk."""

import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from configs import PrepareSection, UserError
from configs.process.files import inside
from data_pipeline.preparation.raw.lines import TextChunk
from data_pipeline.preparation.scoring.numbers import Scores, parse

IN_EXTRA = "score "
"""Before the names of scores in `TextChunk.extra`."""


@dataclass(frozen=True, slots=True)
class ScoreSources:
    """What a process needs to find the scores of a chunk."""

    fields: Sequence[str] = ()
    """Names of those that stand in fields of the corpus: of `TextChunk.extra`."""
    commands: Sequence[str] = ()
    """Names of those of commands."""
    folder: Path = Path()
    """What commands have said, a file for each chunk: an interrupted preparation does not ask again."""

    @property
    def names(self) -> list[str]:
        """All scores, in order."""
        return [*self.fields, *self.commands]

    def of(self, text: TextChunk, unit: int) -> dict[str, Scores]:
        """The scores of a chunk's pairs, by name.

        Args:
            text: the chunk.
            unit: number of its unit.

        Raises:
            UserError: a field is no number, or scores of a command are gone.
        """
        return dict(self._of(text, unit))

    def _of(self, text: TextChunk, unit: int) -> Iterator[tuple[str, Scores]]:
        for name in self.fields:
            yield name, parse(name, text.extra[f"{IN_EXTRA}{name}"], text.where)
        for name in self.commands:
            scores = self.read(name, text, unit)
            if scores is None:
                raise UserError(f"prepare.scores.{name}: {self.folder}: scores were removed meanwhile; prepare again")
            yield name, scores

    def read(self, name: str, text: TextChunk, unit: int) -> Scores | None:
        """What a command has said of a chunk; None if it is not there, or damaged."""
        try:
            with inside.opened(self._path(name, text, unit)) as file, np.load(file, allow_pickle=False) as content:
                scores: Scores = content["scores"]  # a zip file has checksums
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            return None
        return scores if scores.shape == (len(text.sources),) and scores.dtype == np.float32 else None

    def write(self, name: str, text: TextChunk, unit: int, scores: Scores) -> None:
        """Keep what a command has said of a chunk."""
        path = self._path(name, text, unit)
        path.parent.mkdir(parents=True, exist_ok=True)
        with inside.replacing(path, sync=True) as file:
            np.savez(file, scores=scores)

    def _path(self, name: str, text: TextChunk, unit: int) -> Path:
        return self.folder / name / str(unit) / f"{text.first_line}.npz"


def fields_of(section: PrepareSection) -> dict[str, str]:
    """The fields of the corpus that scores stand in, by their names in `TextChunk.extra`."""
    return {f"{IN_EXTRA}{name}": str(field) for name, field in section.train.scores.items()}
