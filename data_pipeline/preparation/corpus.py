"""The raw corpus, whatever its format, in units that are read in spans of a fixed number of pairs.

A corpus is a list of units: two parallel files, or one file or folder with both sides. A unit is divided into spans.
"""

import itertools
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from configs import CorpusFiles, UserError
from configs.components import LeftOut, RawFiles, Reader
from configs.data import UNDETERMINED
from configs.process.progress import say
from data_pipeline.preparation.lines import (
    BYTE_ORDER_MARK,
    LineFormat,
    TextChunk,
    checked,
    decode_lines,
    line_blocks,
    packing_of,
)

MAX_SPAN_BYTES = 64 << 20
"""About the most bytes or characters of a span: one with long lines has fewer lines."""


Group = tuple[Sequence[Sequence[Any]], Mapping[str, int]]
"""Columns of rows, or the lines of each file in bytes; and what was left out."""
SPAN_PAIRS = 65_536
CHUNK_LINES = 4096
MAX_SET_LINES = 1 << 21
MAX_SET_CHARACTERS = 1 << 28
"""The same for both sides together. A set for evaluation is held in memory; it has some thousands of lines."""
Languages = tuple[str, str]
"""Codes of the languages of source and target."""
NO_LANGUAGES = (UNDETERMINED, UNDETERMINED)


class Span(NamedTuple):
    """Consecutive pairs of a unit, given by plain integers that can be stored as JSON."""

    unit: int
    number: int
    """Number of the span in the whole corpus, from 0."""
    first_line: int
    """Number of the first line in the unit, from 1."""
    pairs: int
    """Number of pairs, including empty ones."""
    offsets: tuple[int, ...]
    """Its offset in each of the unit's files, in bytes; empty if they are not seekable."""
    left_out: Mapping[str, int]
    """How much of the file up to the next span makes no pair, by reason (`LeftOut`)."""


class Unit(NamedTuple):
    """Files that are read together from beginning to end."""

    reader: Reader
    files: RawFiles
    extra: Sequence[str]
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
            UserError: a file is missing, empty, broken or truncated, has no such fields, or a line or row that is no
                pair of texts, or parallel files have different numbers of lines. The message names file and line.
        """
        paths, reader, is_seekable = self.files.paths, self.reader, self.is_seekable
        number, first_line, offsets = first_number, 1, [0] * len(paths)
        groups = self._rows(span_pairs)
        if isinstance(reader, LineFormat):
            head = reader.head_lines(self.files)
            counts = itertools.chain([head] * bool(head), itertools.repeat(span_pairs))
            groups = _parallel_lines(paths, offsets, counts, MAX_SPAN_BYTES)
            for columns, _ in itertools.islice(groups, bool(head)):
                first_line, offsets = 1 + head, _end_offsets(offsets, columns)
        for columns, left_out in groups:
            pairs = len(columns[0])
            span = Span(
                unit=number_of_unit,
                number=number,
                first_line=first_line,
                pairs=pairs,
                offsets=tuple(offsets) if is_seekable else (),
                left_out=dict(left_out),
            )
            if is_seekable:
                offsets = _end_offsets(offsets, columns)
            yield span, self._span(first_line, columns)
            number, first_line = number + 1, first_line + pairs
        if number == first_number:
            raise UserError(f"{paths[0]}: has no pair; it must have at least one")

    def read(self, span: Span) -> "RawSpan":
        """One span of a unit that is seekable.

        Raises:
            UserError: a file cannot be read, or has changed since the span was made; or as for `stream`.
        """
        for columns, _ in _parallel_lines(self.files.paths, span.offsets, [span.pairs], sys.maxsize):
            if len(columns[0]) == span.pairs:
                return self._span(span.first_line, columns)
        raise UserError(f"{self.files.paths[0]}: was changed while it was read; prepare again")

    def _span(self, first_line: int, columns: Sequence[Sequence[Any]]) -> "RawSpan":
        """The pairs of rows, or of lines in bytes, by column."""
        if isinstance(self.reader, LineFormat):
            numbers = range(first_line, first_line + len(columns[0]))
            files = zip(self.files.paths, columns, strict=True)
            lines = [decode_lines(path, b"\n".join([*column, b""]), numbers) for path, column in files]
            if first_line == 1:  # a byte order mark is not part of the first sentence
                for side in lines:
                    side[0] = side[0].removeprefix(BYTE_ORDER_MARK)
            columns = self.reader.open(self.files)(lines, numbers)
        return RawSpan(self, first_line, columns)

    def _rows(self, count: int) -> Iterator[Group]:
        """A reader's rows, `count` at a time, once they have been seen to be lines of text."""
        path, number = str(self.files.paths[0]), 0
        group: list[Sequence[str]] = []
        left_out, size = Counter[str](), 0
        for row in self.reader.rows(self.files):
            if isinstance(row, LeftOut):
                left_out[row.reason] += 1
                continue
            if len(group) == count or size >= MAX_SPAN_BYTES:
                yield list(zip(*group, strict=True)), left_out
                group, left_out, size = [], Counter(), 0
            number += 1
            where = f"{path}: line {number}"
            group.append([checked(text, where) for text in row])
            size += sum(map(len, row))
        if group:
            yield list(zip(*group, strict=True)), left_out


class RawSpan(NamedTuple):
    """The pairs of a span."""

    unit: Unit
    first_line: int
    columns: Sequence[Sequence[str]]
    """Sources, targets, and each of the further texts."""

    @property
    def num_pairs(self) -> int:
        """Number of pairs."""
        return len(self.columns[0])

    def pairs(self) -> TextChunk:
        """All pairs."""
        return next(self.chunks(self.num_pairs))

    def chunks(self, size: int) -> Iterator[TextChunk]:
        """All pairs, `size` at a time; the last chunk may be shorter."""
        file = str(self.unit.files.paths[0])
        for first in range(0, self.num_pairs, size):
            sources, targets, *further = [list(column[first : first + size]) for column in self.columns]
            extra = dict(zip(self.unit.extra, further, strict=True))
            yield TextChunk(file, self.first_line + first, sources, targets, extra)

    def rows(self, indices: NDArray[np.int64]) -> list[tuple[str, str]]:
        """The pairs at `indices`, counted from 0, in that order."""
        sources, targets, *_ = self.columns
        return [(sources[row], targets[row]) for row in indices.tolist()]


def _parallel_lines(paths: Sequence[Path], offsets: Sequence[int], counts: Iterable[int], most: int) -> Iterator[Group]:
    """Lines with the same number in several files, as many at a time as are asked for, or about `most` bytes."""
    files = [line_blocks(path, offset) for path, offset in zip(paths, offsets, strict=True)]
    held: list[list[bytes]] = [[] for _ in paths]
    total = 0
    for count in counts:
        for blocks, lines in zip(files, held, strict=True):
            while len(lines) < count and sum(map(len, lines)) < most and (block := next(blocks, None)) is not None:
                lines += block
        number = min(count, *map(len, held))
        if not number:
            break
        yield [lines[:number] for lines in held], {}
        for lines in held:
            del lines[:number]
        total += number
    else:
        return
    if any(held):
        rest = sum(map(len, itertools.chain(*files)))
        counts = [total + len(lines) + rest * bool(lines) for lines in held]
        raise UserError(f"{paths[0]}: {counts[0]} lines, but {counts[1]} in {paths[1]}; both must have equally many")


def _end_offsets(offsets: Sequence[int], columns: Sequence[Sequence[bytes]]) -> list[int]:
    """The offsets behind some lines of each file."""
    return [offset + sum(map(len, lines)) + len(lines) for offset, lines in zip(offsets, columns, strict=True)]


def corpus_units(
    files: CorpusFiles, root: str, extra: Mapping[str, str] | None = None, languages: Languages = NO_LANGUAGES
) -> list[Unit]:
    """The units of a corpus, in order.

    Args:
        files: names them.
        root: folder that their paths are relative to.
        extra: further fields of each pair, by the names that they get in `TextChunk.extra`.
        languages: those wanted of files that have several.
    """
    extra, (source, target) = extra or {}, languages
    return [
        Unit(
            reader=files.reader,
            files=RawFiles(
                paths=tuple(Path(root) / name for name in names),
                further=tuple(extra.values()),
                source_language=source,
                target_language=target,
            ),
            extra=tuple(extra),
        )
        for names in files.units
    ]


def read_whole(files: CorpusFiles, root: str, languages: Languages = NO_LANGUAGES) -> tuple[list[str], list[str]]:
    """Sources and targets of a corpus, such as a test set, in memory. Says what of its files makes no pair.

    Raises:
        UserError: as for `Unit.stream`, or it is too large for memory.
    """
    sources: list[str] = []
    targets: list[str] = []
    size = 0
    for unit in corpus_units(files, root, languages=languages):
        left_out = Counter[str]()
        for span, raw in unit.stream(0, 0, CHUNK_LINES):
            chunk = raw.pairs()
            sources += chunk.sources
            targets += chunk.targets
            left_out.update(span.left_out)
            size += sum(map(len, chunk.sources)) + sum(map(len, chunk.targets))
            if len(sources) > MAX_SET_LINES or size > MAX_SET_CHARACTERS:
                most = f"{MAX_SET_LINES:,} lines or {MAX_SET_CHARACTERS:,} characters"
                raise UserError(f"{chunk.file}: has more than {most}, which are held in memory; take a part")
        for reason, count in left_out.items():
            say(f"{unit.files.paths[0]}: left out {reason}: {count:,}")
    return sources, targets
