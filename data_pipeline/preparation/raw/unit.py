"""Units of a corpus, in any format, read in spans of a fixed number of pairs.

A corpus is a list of units: two parallel files, or one file or folder with both sides. A unit is divided into spans.
Of text files a span holds the lines as bytes, so that only those are decoded that are needed, by many processes.
"""

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from configs import UserError
from configs.components import LeftOut, RawFiles, Reader
from data_pipeline.preparation.raw.fields import checked
from data_pipeline.preparation.raw.lines import (
    BYTE_ORDER_MARK,
    LineFormat,
    Split,
    TextChunk,
    byte_lines,
    decode_lines,
    packing_of,
)

MAX_SPAN_BYTES = 64 << 20
"""About the most bytes or characters of a span: one of long lines has fewer of them."""

Texts = Sequence[Any]
"""Of strings or, in formats of lines, of bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Consecutive pairs of a unit, given by plain integers that can be stored as JSON."""

    unit: int
    number: int
    """Number of the span in the whole corpus, from 0."""
    first_line: int
    """Number of the first line in the unit, from 1."""
    pairs: int
    """Number of pairs, including empty ones."""
    offsets: tuple[int, ...] = ()
    """Its offset in each of the unit's files, in bytes; empty if they are not seekable."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """How much of the file up to the next span makes no pair, by reason (`LeftOut`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """Files that are read together from beginning to end."""

    reader: Reader
    files: RawFiles
    extra: Sequence[str] = ()
    """Names of the further texts in `TextChunk.extra`."""

    @property
    def is_seekable(self) -> bool:
        """Whether a span can be read without reading everything before it: of text that is not compressed."""
        return isinstance(self.reader, LineFormat) and not any(map(packing_of, self.files.paths))

    def stream(self, number_of_unit: int, first_number: int, span_pairs: int) -> Iterator[tuple[Span, "RawSpan"]]:
        """The spans of the unit in order, each of `span_pairs` pairs but the last, and any of long lines.

        At most two spans are in memory: the one yielded and the one being read.

        Args:
            number_of_unit: the unit's number, from 0, for `Span.unit`.
            first_number: number of its first span in the whole corpus.
            span_pairs: pairs of a span.

        Raises:
            UserError: a file is missing, empty, broken or truncated, has no such fields, or a row that cannot be
                text, or parallel files have different numbers of lines.
        """
        offsets = [0] * len(self.files.paths) if self.is_seekable else []
        number, first_line, rows = first_number, 1, self._rows()
        if isinstance(self.reader, LineFormat):
            self.reader.open(self.files)  # so that a field that is not there is found at once
            for line in itertools.islice(rows, self.reader.head_lines(self.files)):
                offsets = [offset + len(side) + 1 for offset, side in zip(offsets, line, strict=False)]
                first_line += 1
        for group, left_out in _groups(rows, span_pairs):
            span = Span(
                unit=number_of_unit,
                number=number,
                first_line=first_line,
                pairs=len(group),
                offsets=tuple(offsets),
                left_out=dict(left_out),
            )
            columns = tuple(zip(*group, strict=True))
            offsets = [
                offset + sum(map(len, column)) + len(column) for offset, column in zip(offsets, columns, strict=False)
            ]
            yield span, RawSpan(self, first_line, columns)
            number, first_line = number + 1, first_line + len(group)
        if number == first_number:
            raise UserError(f"{self.files.paths[0]}: has no pair; it must have at least one")

    def read(self, span: Span) -> "RawSpan":
        """One span of a unit that is seekable.

        Raises:
            UserError: a file cannot be read, or has changed since the span was made.
        """
        group = list(itertools.islice(_beside(self.files.paths, span.offsets), span.pairs))
        if len(group) < span.pairs:
            raise UserError(f"{self.files.paths[0]}: was changed while it was read; prepare again")
        return RawSpan(self, span.first_line, tuple(zip(*group, strict=True)))

    def _rows(self) -> Iterator[Any]:
        """Lines of each file, or a reader's rows, once these have been seen to be lines of text."""
        if isinstance(self.reader, LineFormat):
            yield from _beside(self.files.paths, [0] * len(self.files.paths))
            return
        path, number = str(self.files.paths[0]), 0
        for row in self.reader.rows(self.files):
            if isinstance(row, LeftOut):
                yield row
                continue
            number += 1
            where = f"{path}: line {number}"
            yield [checked(text, where) for text in row]


@dataclass(frozen=True, slots=True)
class RawSpan:
    """The pairs of a span; text of lines is decoded on demand."""

    unit: Unit
    first_line: int
    columns: tuple[Texts, ...]
    """Lines of each file; of formats without lines sources, targets and further texts."""

    @property
    def num_pairs(self) -> int:
        """Number of pairs."""
        return len(self.columns[0])

    def pairs(self) -> TextChunk:
        """All pairs.

        Raises:
            UserError: a line is not UTF-8, holds a NUL byte, does not have its columns, is not valid JSON, or lacks
                text. The message names file and line.
        """
        return next(self.chunks(self.num_pairs))

    def chunks(self, size: int) -> Iterator[TextChunk]:
        """All pairs, `size` at a time; the last chunk may be shorter.

        Raises:
            UserError: as for `pairs`.
        """
        split, paths = self._open(), self.unit.files.paths
        for first in range(0, self.num_pairs, size):
            begin = self.first_line + first
            pieces = [column[first : first + size] for column in self.columns]
            sources, targets, *further = self._texts(split, pieces, range(begin, begin + len(pieces[0])))
            extra = dict(zip(self.unit.extra, further, strict=True))
            yield TextChunk(str(paths[0]), str(paths[-1]), begin, sources, targets, extra)

    def rows(self, indices: NDArray[np.int64]) -> list[tuple[str, str]]:
        """The pairs at `indices`, counted from 0, in that order.

        Raises:
            UserError: as for `pairs`, but only for the chosen lines.
        """
        chosen = indices.tolist()
        pieces = [[column[row] for row in chosen] for column in self.columns]
        sources, targets, *_ = self._texts(self._open(), pieces, (indices + self.first_line).tolist())
        return list(zip(sources, targets, strict=True))

    def _open(self) -> Split | None:
        reader = self.unit.reader
        return reader.open(self.unit.files) if isinstance(reader, LineFormat) else None

    def _texts(self, split: Split | None, pieces: Sequence[Texts], numbers: Sequence[int]) -> list[list[str]]:
        if split is None:
            return [list(map(str, piece)) for piece in pieces]
        lines = []
        for path, piece in zip(self.unit.files.paths, pieces, strict=True):
            decoded = decode_lines(path, b"\n".join([*piece, b""]), numbers)
            if 1 in numbers:  # a byte order mark is not part of the first sentence
                first = numbers.index(1)
                decoded[first] = decoded[first].removeprefix(BYTE_ORDER_MARK)
            lines.append(decoded)
        return split(lines, numbers)


def _beside(paths: Sequence[Path], offsets: Sequence[int]) -> Iterator[tuple[bytes, ...]]:
    """Lines that stand beside each other in several files."""
    files = [byte_lines(path, offset) for path, offset in zip(paths, offsets, strict=True)]
    try:
        yield from zip(*files, strict=True)
    except ValueError as error:
        counts = [sum(1 for _ in byte_lines(path)) for path in paths]
        raise UserError(
            f"{paths[0]}: {counts[0]} lines beside {counts[1]} in {paths[1]}; both must have as many"
        ) from error


def _groups(rows: Iterator[Any], count: int) -> Iterator[tuple[list[Texts], Counter[str]]]:
    """The rows, `count` at a time, and what was left out beside them; fewer rows where they are long."""
    group: list[Texts] = []
    left_out, size = Counter[str](), 0
    for row in rows:
        if isinstance(row, LeftOut):
            left_out[row.reason] += 1
            continue
        if len(group) == count or size >= MAX_SPAN_BYTES:
            yield group, left_out
            group, left_out, size = [], Counter(), 0
        group.append(row)
        size += sum(map(len, row))
    if group:
        yield group, left_out
