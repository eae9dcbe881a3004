"""The filters of training pairs that work on text: their order, and their application to a chunk.

A filter that is off costs nothing. The others process a whole chunk of pairs at a time and are pure: a pair is always
kept, dropped or changed alike, whatever the other pairs.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from configs import CleaningSection, PrepareSection
from configs.components import ChangingFilter, Corpus, DroppingFilter, Filter, Judge, JudgingFilter, Pairs
from data_pipeline.preparation.filters.texts import (
    Empty,
    HeldOutOverlap,
    Identical,
    LanguageIdentification,
    MaxCharacters,
    Normalization,
    RemoveControlCharacters,
    Scripts,
)

EMPTY = "empty"
TOO_LONG, LENGTH_RATIO, DUPLICATE = OF_PIECES = ("too long", "length ratio", "duplicate")
"""Names in the report; these are implemented in `encode` and `shards`, and are applied last."""

Rows = NDArray[np.int64]


class Cleaned(NamedTuple):
    """The remaining pairs of a chunk, and what was rejected."""

    sources: list[str]
    targets: list[str]
    rows: Rows
    """Row in the chunk of each remaining pair, ascending."""
    dropped: dict[str, Rows]
    """Rejected rows of the chunk, ascending, by the first filter that rejected them; all active filters are listed."""
    changed: dict[str, int]
    """Number of pairs that each filter changed, whether or not a later one dropped them."""
    names: list[str]
    """The filters, in order of application."""


def filters_of(section: PrepareSection) -> dict[str, Filter]:
    """The filters of text in order of application, by their places in the configuration."""
    further = {f"prepare.filters.{number}": filter_ for number, filter_ in enumerate(section.filters)}
    return {**{f"prepare.cleaning.{key}": filter_ for key, filter_ in built_in(section.cleaning)}, **further}


def built_in(section: CleaningSection) -> Iterator[tuple[str, Filter]]:
    """The filters that a section sets, by its keys."""
    if section.normalization != "none":
        yield "normalization", Normalization(form=section.normalization)
    if section.control_characters == "remove":
        yield "control_characters", RemoveControlCharacters()
    yield "empty", Empty()
    if section.identical == "drop":
        yield "identical", Identical()
    if section.max_characters is not None:
        yield "max_characters", MaxCharacters(limit=section.max_characters)
    least = section.min_script_share
    if section.source_scripts:
        yield "source_scripts", Scripts(side="source", scripts=section.source_scripts, min_share=least)
    if section.target_scripts:
        yield "target_scripts", Scripts(side="target", scripts=section.target_scripts, min_share=least)
    if section.language_identification:
        yield (
            "language_identification",
            LanguageIdentification(min_probability=section.min_language_probability, model=section.language_model),
        )
    if section.held_out_overlap != "keep":
        yield "held_out_overlap", HeldOutOverlap(mode=section.held_out_overlap)


class Cleaner:
    """Applies filters, in one process.

    Args:
        filters: in order of application, by their places in the configuration.
        corpus: what filters may know about the corpus.

    Raises:
        UserError: a script or language is not known, or the package that identifies languages is missing.
    """

    def __init__(self, filters: Mapping[str, Filter], corpus: Corpus) -> None:
        self._filters: dict[str, tuple[Filter, Judge]] = {}
        """Each filter and its function, by its name."""
        for place, filter_ in filters.items():
            name = filter_.report_name()
            taken, number = {*OF_PIECES, *self._filters}, 1
            while name in taken:
                number += 1
                name = f"{filter_.report_name()} {number}"
            self._filters[name] = filter_, _judge(filter_, corpus, place)

    def clean(self, sources: list[str], targets: list[str], known: Pairs | None = None) -> Cleaned:
        """Apply every filter to a chunk of pairs.

        Args:
            sources, targets: the chunk.
            known: the same, with its further columns; without these, filters by scores do nothing.
        """
        known = known or Pairs(
            sources=sources, targets=targets, where=lambda row: f"pair {row + 1} of the tokenizer's training text"
        )
        rows = np.arange(len(sources), dtype=np.int64)
        dropped: dict[str, Rows] = {}
        changed: dict[str, int] = {}
        for name, (filter_, judge) in self._filters.items():
            if not known.scores.keys() >= set(filter_.score_names()):
                continue
            before = sources, targets
            sources, targets, rejected = judge(_left(known, sources, targets, rows))
            if not isinstance(filter_, DroppingFilter):
                changed[name] = sum(s != u or t != v for s, t, u, v in zip(*before, sources, targets, strict=True))
            bad = np.unique(np.array([*rejected], dtype=np.int64))
            if not isinstance(filter_, ChangingFilter):
                dropped[name] = rows[bad]
            if len(bad):
                left = np.delete(np.arange(len(rows)), bad)
                sources, targets = [sources[i] for i in left], [targets[i] for i in left]
                rows = rows[left]
        return Cleaned(sources, targets, rows, dropped, changed, list(self._filters))


def _judge(filter_: Filter, corpus: Corpus, place: str) -> Judge:
    """A filter's function, of any kind of filter."""
    if isinstance(filter_, DroppingFilter):
        find = filter_.open(corpus, place)
        return lambda pairs: (pairs.sources, pairs.targets, find(pairs.sources, pairs.targets))
    if isinstance(filter_, ChangingFilter):
        change = filter_.open(corpus, place)
        return lambda pairs: (*change(pairs.sources, pairs.targets), ())
    assert isinstance(filter_, JudgingFilter)
    return filter_.open(corpus, place)


def _left(known: Pairs, sources: list[str], targets: list[str], rows: Rows) -> Pairs:
    """What is known of the pairs that are left of a chunk."""
    return dataclasses.replace(
        known,
        sources=sources,
        targets=targets,
        where=lambda row: known.where(int(rows[row])),
        scores={name: scores[rows] for name, scores in known.scores.items()},
    )
