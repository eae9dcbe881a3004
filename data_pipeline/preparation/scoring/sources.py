"""Where the scores of pairs come from, and those of a chunk."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from configs import PrepareSection, UserError
from configs.data import LANGUAGE_SCORE
from configs.reading.interpolations import as_saved
from data_pipeline.preparation.raw.lines import TextChunk
from data_pipeline.preparation.raw.unit import Span
from data_pipeline.preparation.scoring.datasets import made_by_dataset, open_scored, write_dataset_tables
from data_pipeline.preparation.scoring.kept import KeptScores
from data_pipeline.preparation.scoring.languages import LanguageScore, made_by_languages
from data_pipeline.preparation.scoring.numbers import Scores, parse, write_tables
from data_pipeline.preparation.staging import Input
from data_pipeline.prepared.dataset import Dataset
from data_pipeline.prepared.index import map_table

IN_EXTRA = "score "
"""Before the names of scores in `TextChunk.extra`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreSources:
    """What a process needs to find the scores of a chunk."""

    fields: Sequence[str] = ()
    """Names of those that stand in fields of the corpus: of `TextChunk.extra`."""
    tables: Mapping[str, Sequence[Path | None]] = dataclasses.field(default_factory=dict)
    """Of each that stands in side files: a table for each unit."""
    first_lines: Sequence[int] = ()
    """Number of the first line of each unit."""
    kept: Mapping[str, KeptScores] = dataclasses.field(default_factory=dict)
    """Those of commands."""
    language: LanguageScore | None = None

    @classmethod
    def of_section(
        cls, section: PrepareSection, makers: Mapping[str, Mapping[str, Any]], spans: Sequence[Span], folder: Path
    ) -> "ScoreSources":
        """Those that a section names. What stands in side files is read here, into tables.

        Args:
            section: names them.
            makers: what makes each, from `made_by`.
            spans: of the whole corpus, in order.
            folder: for the tables; those that are there are kept.

        Raises:
            UserError: a file cannot be read, has another number of lines than its unit, or a line that is no number.
        """
        pairs: dict[int, int] = {}
        first_lines: dict[int, int] = {}
        for span in spans:
            pairs[span.unit] = pairs.get(span.unit, 0) + span.pairs
            first_lines.setdefault(span.unit, span.first_line)
        files = {
            name: [None if path is None else Path(section.root) / path for path in paths]
            for name, paths in section.train.score_files.items()
        }
        datasets = {
            name: Dataset.load(Path(section.root) / path) for name, path in section.train.score_datasets.items()
        }
        beside = write_dataset_tables(datasets, [*pairs.values()], [*first_lines.values()], folder)
        return cls(
            fields=list(section.train.scores),
            tables={**write_tables(files, [*pairs.values()], folder), **beside},
            first_lines=[*first_lines.values()],
            kept={name: KeptScores.beside(Path(section.output), makers[name]) for name in section.scores},
            language=LanguageScore.of_section(section),
        )

    @property
    def names(self) -> list[str]:
        """All scores, in order."""
        return [*self.fields, *self.tables, *self.kept, *([LANGUAGE_SCORE] if self.language else [])]

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
        for name, tables in self.tables.items():
            first, table = text.first_line - self.first_lines[unit], tables[unit]
            rows = slice(first, first + len(text.sources))
            none = np.full(len(text.sources), np.nan, dtype=np.float32)
            yield name, none if table is None else np.array(map_table(table)[rows])
        for name, kept in self.kept.items():
            scores = kept.read(text.sources, text.targets)
            if scores is None:
                raise UserError(f"prepare.scores.{name}: {kept.folder}: scores were removed meanwhile; prepare again")
            yield name, scores
        if self.language is not None:
            yield LANGUAGE_SCORE, self.language.of(text.sources, text.targets)


def fields_of(section: PrepareSection) -> dict[str, str]:
    """The fields of the corpus that scores stand in, by their names in `TextChunk.extra`."""
    return {f"{IN_EXTRA}{name}": str(field) for name, field in section.train.scores.items()}


def made_by(section: PrepareSection, inputs: Sequence[Input]) -> dict[str, dict[str, Any]]:
    """What makes each score, as plain JSON: a field, files by name and content, a command and what it depends on, or
    an identifier of languages. Values of environment variables are not in it.

    Args:
        section: names them.
        inputs: all of the preparation.
    """
    section = as_saved(section)
    found: dict[str, dict[str, Any]] = {name: {"field": str(field)} for name, field in section.train.scores.items()}
    for name, paths in section.train.score_files.items():
        files = ({"file": f.name, "sha256": f.sha256} for f in inputs if f.split == f"train.score_files.{name}")
        found[name] = {"files": [None if path is None else next(files, {"file": Path(path).name}) for path in paths]}
    for name, path in section.train.score_datasets.items():
        found[name] = made_by_dataset(name, open_scored(name, Path(section.root) / path, inputs))
    for name, one in section.scores.items():
        depends = {f.name: f.sha256 for f in inputs if f.split == f"scores.{name}.depends"}
        found[name] = {"command": list(one.command), "depends": depends}
    if section.language_score:
        found[LANGUAGE_SCORE] = made_by_languages(section)
    return found
