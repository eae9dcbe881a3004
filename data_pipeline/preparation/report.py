"""The report on what each filter dropped and changed: `report.json`, and a table of it."""

import dataclasses
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import TypeAdapter, ValidationError

from configs.fields import STRICT, Count
from configs.process.files.inside import parse_json
from data_pipeline.errors import DataError
from data_pipeline.preparation.cleaning import EMPTY, NORMALIZATION, OF_PIECES, TOO_LONG, Cleaned, Rows
from data_pipeline.preparation.filters.sides import find_identical
from data_pipeline.preparation.raw.lines import TextChunk
from data_pipeline.prepared.index import REPORT_FILE

NUM_EXAMPLES = 3
EXAMPLE_CHARACTERS = 200
BAR_WIDTH = 40
NUM_TAGS = 10
"""Maximum number of different tags that are counted."""
Side = Literal["source", "target"]
SIDES: tuple[Side, ...] = ("source", "target")
ALWAYS = (EMPTY, TOO_LONG)
"""Filters that are always on."""


@dataclass(frozen=True, slots=True)
class Example:
    """A dropped pair, as it was read; its sides are cut to 200 characters."""

    __pydantic_config__ = STRICT

    where: str
    """File name and line, without the folder, so that a dataset's bytes do not depend on its corpus's location."""
    source: str
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterReport:
    """The counts of one filter."""

    __pydantic_config__ = STRICT

    dropped: Count = 0
    changed: Count = 0
    """Pairs changed on either side, whether or not a later filter dropped them."""
    examples: list[Example] = field(default_factory=list)
    """The first pairs that it dropped, in corpus order; none for duplicates."""

    def merge(self, later: "FilterReport") -> "FilterReport":
        """The report of this part of the corpus and a later one."""
        return FilterReport(
            dropped=self.dropped + later.dropped,
            changed=self.changed + later.changed,
            examples=[*self.examples, *later.examples][:NUM_EXAMPLES],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceCount:
    """Pieces on one side, over the pairs that the filters of text and pieces kept."""

    __pydantic_config__ = STRICT

    unknown: Count = 0
    """Number of `<unk>` pieces; SentencePiece writes one for several consecutive unknown characters."""
    pieces: Count = 0

    @property
    def fraction(self) -> float:
        """Fraction of unknown pieces."""
        return self.unknown / max(1, self.pieces)

    def merge(self, more: "PieceCount") -> "PieceCount":
        """The sums of both."""
        return PieceCount(unknown=self.unknown + more.unknown, pieces=self.pieces + more.pieces)

    def __str__(self) -> str:
        return f"{self.unknown:,} of {self.pieces:,} ({self.fraction:.2%})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What happened to the pairs of a corpus, or of a part of one."""

    __pydantic_config__ = STRICT

    read: Count
    identical: Count
    """Pairs with equal sides that reached the filter of duplicates."""
    filters: dict[str, FilterReport]
    """Filters by name, in order of application: those that were on."""
    pieces: dict[Side, PieceCount] = field(default_factory=dict)
    """Counts by side."""
    tags_as_text: dict[str, Count] = field(default_factory=dict)
    """Tags such as `>>xyz<<` that source lines begin with and that were taken for text, and how many lines have each;
    the first few."""
    left_out: dict[str, Count] = field(default_factory=dict)
    """What in the corpus's files makes no pair, and is not counted as read: counts by reason (`raw.unit.LeftOut`)."""

    @classmethod
    def empty(cls) -> "Report":
        """The report of no pairs."""
        return cls(read=0, identical=0, filters={name: FilterReport() for name in ALWAYS})

    @classmethod
    def of(cls, *, dropped: Mapping[str, int]) -> "Report":
        """A report of pairs that are counted in another report but were dropped later."""
        filters = {name: FilterReport(dropped=count) for name, count in dropped.items()}
        return Report.empty().merge(cls(read=0, identical=0, filters=filters))

    @classmethod
    def of_chunk(cls, text: TextChunk, cleaned: Cleaned, *, dropped: Mapping[str, Rows]) -> "Report":
        """The report of a chunk, given the rows that later filters dropped after the cleaner."""
        rows = {name: [taken] for name, taken in cleaned.dropped.items()}
        for name, taken in dropped.items():
            rows.setdefault(name, []).append(taken)
        reports = {name: _of_rows(text, np.sort(np.concatenate(parts))) for name, parts in rows.items()}
        for name, count in cleaned.changed.items():
            reports[name] = reports.get(name, FilterReport()).merge(FilterReport(changed=count))
        filters = {name: reports[name] for name in _in_order(cleaned.names, reports)}
        identical = cleaned.rows[find_identical(cleaned.sources, cleaned.targets)]
        for taken in dropped.values():
            identical = np.setdiff1d(identical, taken, assume_unique=True)
        return Report.empty().merge(cls(read=len(text.sources), identical=len(identical), filters=filters))

    @property
    def kept(self) -> int:
        """Number of pairs that no filter dropped."""
        return self.read - sum(entry.dropped for entry in self.filters.values())

    def merge(self, later: "Report") -> "Report":
        """The report of this part of the corpus and a later one."""
        none = FilterReport()
        return Report(
            read=self.read + later.read,
            identical=self.identical + later.identical,
            filters={
                name: self.filters.get(name, none).merge(later.filters.get(name, none))
                for name in _in_order(self.filters, later.filters)
            },
            pieces={
                side: self.num_pieces(side).merge(later.num_pieces(side))
                for side in SIDES
                if side in self.pieces or side in later.pieces
            },
            tags_as_text=_first_few(self.tags_as_text, later.tags_as_text),
            left_out=dict(Counter(self.left_out) + Counter(later.left_out)),
        )

    def num_pieces(self, side: Side) -> PieceCount:
        """The pieces of one side, and how many of them are unknown."""
        return self.pieces.get(side, PieceCount())

    def dropped(self) -> dict[str, int]:
        """Number of pairs dropped by each filter that was on and can drop, in their order."""
        return {name: entry.dropped for name, entry in self.filters.items() if name != NORMALIZATION}

    def table(self) -> list[str]:
        """One line for each filter, under a header."""
        head = ("filter", "rejected", "fraction", "changed")
        rows = [
            (name, f"{entry.dropped:,}", f"{entry.dropped / max(1, self.read):.2%}", f"{entry.changed:,}")
            for name, entry in self.filters.items()
        ]
        widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
        return [
            "  ".join([row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))])
            for row in (head, *rows)
        ]

    def left_out_lines(self) -> list[str]:
        """One line for each reason for which something in the corpus's files makes no pair."""
        return [f"{count:,} {reason}" for reason, count in self.left_out.items()]

    def to_json(self) -> bytes:
        """The bytes of `report.json`; the same report gives the same bytes."""
        tree: dict[str, Any] = {"read": self.read, "kept": self.kept, "identical": self.identical}
        tree["filters"] = {name: dataclasses.asdict(entry) for name, entry in self.filters.items()}
        if self.pieces:
            tree["pieces"] = {side: dataclasses.asdict(count) for side, count in self.pieces.items()}
        if self.tags_as_text:
            tree["tags_as_text"] = self.tags_as_text
        if self.left_out:
            tree["left_out"] = self.left_out
        return (json.dumps(tree, indent=1, ensure_ascii=False) + "\n").encode()

    @classmethod
    def from_json(cls, content: bytes, where: Path | str = REPORT_FILE) -> "Report":
        """Read what `to_json` wrote.

        Raises:
            DataError: it is invalid.
        """
        try:
            tree = parse_json(content)
            if not isinstance(tree, dict):
                raise DataError(f"{where}: is no report of a preparation; allowed is a JSON object")
            kept = tree.pop("kept", None)
            report: Report = TypeAdapter(Report).validate_json(json.dumps(tree))
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(map(str, first["loc"]))
            raise DataError(f"{where}: {place}: {first['input']!r:.200}: {first['msg']}") from error
        except ValueError as error:
            raise DataError(f"{where}: is no report of a preparation: {error}") from error
        if kept != report.kept:
            raise DataError(f"{where}: kept: {kept!r:.200}; allowed is what the filters left of read, {report.kept}")
        return report


def _in_order(names: Iterable[str], others: Iterable[str]) -> list[str]:
    """All names in order of application: filters of text in the order of the longer report, then `OF_PIECES`.

    A report has either all filters of text that were on, or only the one that is always on.
    """
    both = [*names], [*others]
    text = sorted(([name for name in some if name not in OF_PIECES] for some in both), key=len, reverse=True)
    return [*dict.fromkeys([*text[0], *text[1]]), *(name for name in OF_PIECES if name in both[0] or name in both[1])]


def _first_few(counts: Mapping[str, int], more: Mapping[str, int]) -> dict[str, int]:
    return {name: counts.get(name, 0) + more.get(name, 0) for name in list({**counts, **more})[:NUM_TAGS]}


def _of_rows(text: TextChunk, rows: Rows) -> FilterReport:
    return FilterReport(dropped=len(rows), examples=[_example(text, int(row)) for row in rows[:NUM_EXAMPLES]])


def _example(text: TextChunk, row: int) -> Example:
    where = f"{Path(text.source_file).name}: line {text.first_line + row}"
    return Example(where, text.sources[row][:EXAMPLE_CHARACTERS], text.targets[row][:EXAMPLE_CHARACTERS])
