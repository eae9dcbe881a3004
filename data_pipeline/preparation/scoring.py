"""Scores of pairs while a dataset is prepared: from fields of the corpus, and from commands."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from configs import PrepareSection, UserError
from configs.components import Pairs
from configs.data import ScoreCommand
from configs.process.files import inside
from data_pipeline.preparation.asking import Respondents
from data_pipeline.preparation.raw.lines import TextChunk

MOST = float(np.finfo(np.float32).max)
"""The largest score."""
IN_EXTRA = "score "
"""Before the names of scores in `TextChunk.extra`."""

Scores = NDArray[np.float32]
"""(pairs,), NaN where a pair has none."""


@dataclass(frozen=True, slots=True)
class ScoreSources:
    """What a process needs to find the scores of a chunk."""

    fields: Sequence[str]
    """Names of those that stand in fields of the corpus: of `TextChunk.extra`."""
    commands: Sequence[str]
    """Names of those of commands."""
    folder: Path
    """What commands have said, a file for each chunk: an interrupted preparation does not ask again."""

    def of(self, text: TextChunk, unit: int) -> dict[str, Scores]:
        """The scores of a chunk's pairs, by name.

        Args:
            text: the chunk.
            unit: number of its unit.

        Raises:
            UserError: a field is no number, or scores of a command are gone.
        """
        found = {name: _of_field(name, text) for name in self.fields}
        for name in self.commands:
            if (scores := self.read(name, text, unit)) is None:
                raise UserError(f"prepare.scores.{name}: {self.folder}: scores were removed meanwhile; prepare again")
            found[name] = scores
        return found

    def read(self, name: str, text: TextChunk, unit: int) -> Scores | None:
        """What a command has said of a chunk; None if it is not there, or damaged."""
        try:
            with inside.opened(self._path(name, text, unit)) as file:
                scores: Scores = np.load(file, allow_pickle=False)
        except (OSError, ValueError, EOFError):
            return None
        return scores if scores.shape == (len(text.sources),) else None

    def write(self, name: str, text: TextChunk, unit: int, scores: Scores) -> None:
        """Keep what a command has said of a chunk."""
        path = self._path(name, text, unit)
        path.parent.mkdir(parents=True, exist_ok=True)
        with inside.replacing(path, sync=True) as file:
            np.save(file, scores)

    def _path(self, name: str, text: TextChunk, unit: int) -> Path:
        return self.folder / name / str(unit) / f"{text.first_line}.npy"


def fields_of(section: PrepareSection) -> dict[str, str]:
    """The fields of the corpus that scores stand in, by their names in `TextChunk.extra`."""
    return {f"{IN_EXTRA}{name}": str(field) for name, field in section.train.scores.items()}


def score_chunks(
    command: ScoreCommand,
    name: str,
    scores: ScoreSources,
    chunks: Iterable[tuple[TextChunk, int]],
    advance: Callable[[int], None],
) -> None:
    """Let a program score the pairs of chunks that have no scores yet, and keep these.

    Args:
        command: the program.
        name: of the score.
        scores: where they are kept.
        chunks: of the corpus, each with the number of its unit.
        advance: called with numbers of pairs that are done.

    Raises:
        UserError: the program does not answer as it should, or a chunk cannot be read. What is done stays.
    """
    place = f"prepare.scores.{name}.command"
    with Respondents(
        command.command, place, processes=command.processes, batch=command.batch, seconds=command.seconds
    ) as programs:
        for text, unit in chunks:
            if scores.read(name, text, unit) is None:
                scores.write(name, text, unit, _asked(programs, text))
            advance(len(text.sources))


def _asked(programs: Respondents, text: TextChunk) -> Scores:
    """What programs say of a chunk; a pair with a blank side has no score."""
    found = np.full(len(text.sources), np.nan, dtype=np.float32)
    pairs = Pairs(sources=text.sources, targets=text.targets, where=text.where)
    both = zip(text.sources, text.targets, strict=True)
    rows = [row for row, (source, target) in enumerate(both) if source.strip() and target.strip()]
    for row, answer in programs.ask(pairs, rows):
        if not _is_score(answer.get("score", "")):
            said = repr(answer.get("score", "no score"))[:80]
            raise programs.refused(pairs, row, said, "a finite number as its score, or null")
        found[row] = np.nan if answer["score"] is None else answer["score"]
    return found


def _is_score(value: Any) -> bool:
    if value is None:
        return True
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= MOST


def _of_field(name: str, text: TextChunk) -> Scores:
    """The numbers in a field of a chunk; of an empty one and `nan` NaN."""
    found = np.empty(len(text.sources), dtype=np.float32)
    for row, number in enumerate(text.extra[f"{IN_EXTRA}{name}"]):
        try:
            value = float(number.strip() or "nan")
        except ValueError:
            value = np.inf
        if abs(value) > MOST or "_" in number:  # Python reads 12_34 as a number
            where, allowed = text.where(row), "a number, or nothing where there is no score"
            raise UserError(f"{where}: {name} is {number!r:.80}; allowed is {allowed}")
        found[row] = value
    return found
