"""What every format of raw text is to preparation: units, read in spans of a fixed number of pairs.

A corpus is a list of units: two parallel files, or one file or folder with both sides. A unit is divided into spans.
A span holds bytes, a line for each pair, so that processes decode spans in parallel.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from configs import CorpusFiles, UserError
from data_pipeline.preparation.raw.lines import LINE_FEED, MAX_TAKE_BYTES, TextChunk, decode_lines

Languages = tuple[str, str]
"""Codes of the languages of source and target."""
Row = Sequence[str]
"""Source, target and further texts of a pair; none holds a line feed."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Something in a file that makes no pair, and is counted by its reason."""

    reason: str
    """In the plural, such as `units without fr`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Consecutive lines of a unit, given by plain integers that can be stored as JSON."""

    unit: int
    number: int
    """Number of the span in the whole corpus, from 0."""
    first_line: int
    """Number of the first line in the unit, from 1."""
    pairs: int
    """Number of lines, including empty ones."""
    offsets: tuple[int, ...] = ()
    """Its offset in each of the unit's files, in bytes; empty if they are not lines of text, or not seekable."""
    sizes: tuple[int, ...] = ()
    """Its number of bytes in each file."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """How much of the file up to the next span makes no pair, by reason (`LeftOut`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit(ABC):
    """Files that are read together from beginning to end: a format of raw text."""

    paths: tuple[Path, ...]
    source_field: str = "source"
    target_field: str = "target"
    extra: Mapping[str, str] = field(default_factory=dict)
    """Further fields of each pair, by the names that they have in `TextChunk.extra`."""

    @classmethod
    def of(cls, files: CorpusFiles, paths: tuple[Path, ...], extra: Mapping[str, str], languages: Languages) -> Self:
        """The unit of some of a corpus's files.

        Raises:
            UserError: a file whose beginning says what its fields are cannot be read, or does not have them.
        """
        source_field, target_field = str(files.source_field), str(files.target_field)
        return cls(paths=paths, source_field=source_field, target_field=target_field, extra=extra)

    @property
    def fields(self) -> tuple[str, ...]:
        """Those of source, target and further texts."""
        return (self.source_field, self.target_field, *self.extra.values())

    @property
    @abstractmethod
    def is_seekable(self) -> bool:
        """Whether a span can be read without reading everything before it."""

    @abstractmethod
    def stream(self, number_of_unit: int, first_number: int, span_pairs: int) -> Iterator[tuple[Span, "RawSpan"]]:
        """The spans of the unit in order, each of `span_pairs` lines but the last.

        At most two spans are in memory: the one yielded and the one being read. Text is not decoded. A span of long
        lines has fewer of them, always the same (`MAX_TAKE_BYTES`).

        Args:
            number_of_unit: the unit's number, from 0, for `Span.unit`.
            first_number: number of its first span in the whole corpus.
            span_pairs: lines of a span.

        Raises:
            UserError: a file is missing, empty, unreadable, broken or truncated, or parallel files have different
                numbers of lines.
        """

    @abstractmethod
    def read(self, span: Span) -> "RawSpan":
        """The bytes of one span of a unit that is seekable.

        Raises:
            UserError: a file cannot be read, or has changed since the span was made.
        """

    @abstractmethod
    def decode(self, data: Sequence[bytes], numbers: Sequence[int]) -> list[list[str]]:
        """Sources, targets and each of the further texts.

        Args:
            data: lines, as in `RawSpan.data`.
            numbers: the number of each line.

        Raises:
            UserError: see `RawSpan.pairs`.
        """


@dataclass(frozen=True, slots=True)
class RawSpan:
    """The bytes of a span; text is decoded on demand."""

    unit: Unit
    first_line: int
    num_pairs: int
    data: tuple[bytes, ...]
    """The lines of each file or column, each ending in a line feed."""

    def pairs(self) -> TextChunk:
        """All pairs.

        Raises:
            UserError: a line is not UTF-8, holds a NUL byte, does not have its columns, is not valid JSON, or lacks
                text. The message names file and line.
        """
        return self._chunk(self.data, 0, self.num_pairs)

    def chunks(self, size: int) -> Iterator[TextChunk]:
        """All pairs, `size` at a time; the last chunk may be shorter.

        Raises:
            UserError: as for `pairs`.
        """
        if size >= self.num_pairs:
            yield self.pairs()
            return
        firsts = range(0, self.num_pairs, size)
        cuts = [[0, *line_ends(data)[size - 1 : -1 : size].tolist(), len(data)] for data in self.data]
        for number, first in enumerate(firsts):
            pieces = tuple(d[c[number] : c[number + 1]] for d, c in zip(self.data, cuts, strict=True))
            yield self._chunk(pieces, first, min(size, self.num_pairs - first))

    def rows(self, indices: NDArray[np.int64]) -> list[tuple[str, str]]:
        """The pairs at `indices`, counted from 0, in that order.

        Raises:
            UserError: as for `pairs`, but only for the chosen lines.
        """
        pieces = []
        for data in self.data:
            ends = line_ends(data)
            starts = np.concatenate([[0], ends[:-1]])
            spans = zip(starts[indices].tolist(), ends[indices].tolist(), strict=True)
            pieces.append(b"".join([data[start:end] for start, end in spans]))
        sources, targets, *_ = self.unit.decode(pieces, (indices + self.first_line).tolist())
        return list(zip(sources, targets, strict=True))

    def _chunk(self, pieces: Sequence[bytes], first: int, count: int) -> TextChunk:
        unit, begin = self.unit, self.first_line + first
        sources, targets, *further = unit.decode(pieces, range(begin, begin + count))
        extra = dict(zip(unit.extra, further, strict=True))
        return TextChunk(str(unit.paths[0]), str(unit.paths[-1]), begin, sources, targets, extra)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowUnit(Unit):
    """A file or folder of which a library reads rows, which are no lines of text; a span holds lines made of them."""

    @abstractmethod
    def rows(self, first: int) -> Iterator[Row | LeftOut]:
        """The rows from number `first`, counted from 0, to the end. A unit that is not seekable is asked for all.

        Raises:
            UserError: during reading, if the file is broken or a row lacks text.
        """

    def stream(self, number_of_unit: int, first_number: int, span_pairs: int) -> Iterator[tuple[Span, RawSpan]]:
        """See `Unit.stream`."""
        number, first_line = first_number, 1
        for rows, left_out in _groups(self.rows(0), span_pairs):
            span = Span(
                unit=number_of_unit, number=number, first_line=first_line, pairs=len(rows), left_out=dict(left_out)
            )
            yield span, self._raw_span(span, rows)
            number, first_line = number + 1, first_line + len(rows)
        if first_line == 1:
            raise UserError(f"{self.paths[0]}: is empty; it must have at least one row")

    def read(self, span: Span) -> RawSpan:
        """See `Unit.read`."""
        assert self.is_seekable
        rows = [row for row in islice(self.rows(span.first_line - 1), span.pairs) if not isinstance(row, LeftOut)]
        if len(rows) < span.pairs:
            raise changed(self.paths[0])
        return self._raw_span(span, rows)

    def decode(self, data: Sequence[bytes], numbers: Sequence[int]) -> list[list[str]]:
        """See `Unit.decode`."""
        return [decode_lines(self.paths[0], lines, numbers) for lines in data]

    def _raw_span(self, span: Span, rows: Sequence[Row]) -> RawSpan:
        columns = tuple("".join([f"{text}\n" for text in column]).encode() for column in zip(*rows, strict=True))
        return RawSpan(self, span.first_line, span.pairs, columns)


def _groups(rows: Iterator[Row | LeftOut], count: int) -> Iterator[tuple[list[Row], Counter[str]]]:
    """The rows, `count` at a time, and what was left out beside them; fewer rows where they are long."""
    group: list[Row] = []
    left_out, size = Counter[str](), 0
    for row in rows:
        if isinstance(row, LeftOut):
            left_out[row.reason] += 1
            continue
        if len(group) == count or size >= MAX_TAKE_BYTES:
            yield group, left_out
            group, left_out, size = [], Counter(), 0
        group.append(row)
        size += sum(map(len, row))
    if group:
        yield group, left_out


def line_ends(data: bytes) -> NDArray[np.int64]:
    """The end offset of each line, including its line feed."""
    return np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == LINE_FEED) + 1


def changed(path: Path) -> UserError:
    """The error for a file that is no longer what it was when its spans were made."""
    return UserError(f"{path}: was changed while it was read; prepare again")
