"""Reads a parallel corpus of any format in spans of a fixed number of pairs.

A corpus is a list of units: two parallel files, or one TSV file, JSON-lines file or Hugging Face dataset. A unit is
divided into spans of `SPAN_PAIRS` lines. A span holds bytes, so that dividing a file only needs a search for line
feeds, and processes decode spans in parallel.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from configs import CorpusFiles, UserError
from configs.process.files.inside import parse_json
from data_pipeline.preparation.raw import huggingface
from data_pipeline.preparation.raw.huggingface import MISSING, find
from data_pipeline.preparation.raw.lines import (
    LINE_FEED,
    MAX_TAKE_BYTES,
    LineReader,
    TextChunk,
    corpus_paths,
    decode_lines,
    packing_of,
)

SPAN_PAIRS = 65_536
CHUNK_LINES = 4096
MAX_SET_LINES = 1 << 21
MAX_SET_CHARACTERS = 1 << 28
"""The same for both sides together. A set for evaluation is held in memory; it has some thousands of lines."""
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
ONE_LINE = str.maketrans("\n\r", "  ")

Columns = tuple[list[str], list[str]]
"""Sources and targets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """Two parallel files, or one file with both sides, read from beginning to end."""

    kind: Literal["text", "tsv", "jsonl", "huggingface"]
    paths: tuple[Path, ...]
    source_field: str = "source"
    target_field: str = "target"

    @property
    def is_seekable(self) -> bool:
        """Whether a span can be read without reading everything before it."""
        return not any(packing_of(path) for path in self.paths if self.kind != "huggingface")


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
    """Its offset in each of the unit's files, in bytes; empty if the unit is not seekable."""
    sizes: tuple[int, ...] = ()
    """Its number of bytes in each file."""


@dataclass(frozen=True, slots=True)
class RawSpan:
    """The bytes of a span; text is decoded on demand."""

    unit: Unit
    first_line: int
    num_pairs: int
    data: tuple[bytes, ...]
    """The lines of each file or side, each ending in a line feed."""

    def pairs(self) -> TextChunk:
        """All pairs.

        Raises:
            UserError: a line is not UTF-8, holds a NUL byte, does not have exactly two columns, is not valid JSON, or
                lacks text. The message names file and line.
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
        cuts = [[0, *_line_ends(data)[size - 1 : -1 : size].tolist(), len(data)] for data in self.data]
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
            ends = _line_ends(data)
            starts = np.concatenate([[0], ends[:-1]])
            spans = zip(starts[indices].tolist(), ends[indices].tolist(), strict=True)
            pieces.append(b"".join([data[start:end] for start, end in spans]))
        sources, targets = _decode(self.unit, pieces, (indices + self.first_line).tolist())
        return list(zip(sources, targets, strict=True))

    def _chunk(self, pieces: Sequence[bytes], first: int, count: int) -> TextChunk:
        begin = self.first_line + first
        sources, targets = _decode(self.unit, pieces, range(begin, begin + count))
        return TextChunk(str(self.unit.paths[0]), str(self.unit.paths[-1]), begin, sources, targets)


def corpus_units(files: CorpusFiles, root: str) -> list[Unit]:
    """The units of a corpus, in order."""
    paths = corpus_paths(files, root)
    if files.source:
        return [Unit(kind="text", paths=pair) for pair in zip(paths[::2], paths[1::2], strict=True)]
    kind: Literal["tsv", "jsonl", "huggingface"] = "tsv" if files.tsv else "jsonl" if files.jsonl else "huggingface"
    fields = {"source_field": files.source_field, "target_field": files.target_field}
    return [Unit(kind=kind, paths=(path,), **fields) for path in paths]


def stream_spans(
    unit: Unit, number_of_unit: int, first_number: int, span_pairs: int = SPAN_PAIRS
) -> Iterator[tuple[Span, RawSpan]]:
    """The spans of a unit in order, each of `span_pairs` lines but the last.

    At most two spans are in memory: the one yielded and the one being read. Text is not decoded. A span of long
    lines has fewer of them, always the same (`MAX_TAKE_BYTES`).

    Args:
        unit: the unit to read.
        number_of_unit: its number, from 0, for `Span.unit`.
        first_number: number of its first span in the whole corpus.
        span_pairs: lines of a span.

    Raises:
        UserError: a file is missing, empty, unreadable, broken or truncated, or parallel files have different numbers
            of lines.
    """
    if unit.kind == "huggingface":
        yield from _stream_rows(unit, number_of_unit, first_number, span_pairs)
        return
    readers = [LineReader(path) for path in unit.paths]
    number, first_line = first_number, 1
    while True:
        offsets = tuple(reader.offset for reader in readers)
        data = _take_beside(readers, span_pairs)
        if len({reader.num_lines for reader in readers}) > 1:
            left, right = (reader.count_rest() for reader in readers)
            raise UserError(f"{unit.paths[0]}: {left} lines beside {right} in {unit.paths[1]}; both must have as many")
        pairs = readers[0].num_lines - (first_line - 1)
        if not pairs:
            return
        sizes = tuple(reader.offset - offset for reader, offset in zip(readers, offsets, strict=True))
        if not unit.is_seekable:
            offsets = sizes = ()
        span = Span(
            unit=number_of_unit, number=number, first_line=first_line, pairs=pairs, offsets=offsets, sizes=sizes
        )
        yield span, _raw_span(unit, span, data)
        number, first_line = number + 1, first_line + pairs


def _take_beside(readers: Sequence[LineReader], count: int) -> tuple[bytes, ...]:
    """The next lines of each file: as many of all where long lines end one file's part early."""
    before = readers[0].num_lines
    data = [reader.take(count) for reader in readers]
    fewest = min(reader.num_lines for reader in readers) - before
    if fewest and max(map(len, data)) >= MAX_TAKE_BYTES:
        for number, reader in enumerate(readers):
            if more := reader.num_lines - before - fewest:
                end = int(_line_ends(data[number])[fewest - 1])
                reader.give_back(data[number][end:], more)
                data[number] = data[number][:end]
    return tuple(data)


def read_span(unit: Unit, span: Span) -> RawSpan:
    """The bytes of one span of a unit that is seekable.

    Raises:
        UserError: a file cannot be read, or has changed since the span was made.
    """
    assert unit.is_seekable
    if unit.kind == "huggingface":
        dataset = huggingface.open_dataset(unit.paths[0])
        if len(dataset) < span.first_line - 1 + span.pairs:
            raise _changed(unit.paths[0])
        return _rows(unit, dataset, span)
    data = []
    for path, offset, size in zip(unit.paths, span.offsets, span.sizes, strict=True):
        try:
            with path.open("rb") as file:
                file.seek(offset)
                lines = file.read(size)
        except OSError as error:
            raise UserError(f"{path}: cannot be read: {error.strerror or error}") from error
        if len(lines) < size:
            raise _changed(path)
        if not lines.endswith(b"\n"):  # the last line of the file may lack its line feed
            lines += b"\n"
        if np.count_nonzero(np.frombuffer(lines, dtype=np.uint8) == LINE_FEED) != span.pairs:
            raise _changed(path)
        data.append(lines)
    return _raw_span(unit, span, tuple(data))


def read_chunks(files: CorpusFiles, root: str, size: int) -> Iterator[TextChunk]:
    """All pairs of a corpus in chunks of `size` lines; a unit's last chunk may be shorter.

    Raises:
        UserError: as for `stream_spans` and `RawSpan.pairs`.
    """
    for number, unit in enumerate(corpus_units(files, root)):
        for _, raw in stream_spans(unit, number, 0, size):
            yield raw.pairs()


def read_whole(files: CorpusFiles, root: str) -> Columns:
    """All pairs of a corpus, such as a test set, in memory.

    Raises:
        UserError: as for `read_chunks`, or it is too large for memory.
    """
    sources: list[str] = []
    targets: list[str] = []
    size = 0
    for chunk in read_chunks(files, root, CHUNK_LINES):
        sources += chunk.sources
        targets += chunk.targets
        size += sum(map(len, chunk.sources)) + sum(map(len, chunk.targets))
        if len(sources) > MAX_SET_LINES or size > MAX_SET_CHARACTERS:
            most = f"{MAX_SET_LINES:,} lines or {MAX_SET_CHARACTERS:,} characters"
            raise UserError(f"{chunk.source_file}: has more than {most}, which are held in memory; take a part of it")
    return sources, targets


def _stream_rows(unit: Unit, number_of_unit: int, first_number: int, span_pairs: int) -> Iterator[tuple[Span, RawSpan]]:
    dataset = huggingface.open_dataset(unit.paths[0])
    if len(dataset) == 0:
        raise UserError(f"{unit.paths[0]}: is empty; it must have at least one row")
    for index, first in enumerate(range(0, len(dataset), span_pairs)):
        pairs = min(span_pairs, len(dataset) - first)
        span = Span(unit=number_of_unit, number=first_number + index, first_line=first + 1, pairs=pairs)
        yield span, _rows(unit, dataset, span)


def _rows(unit: Unit, dataset: Any, span: Span) -> RawSpan:
    columns = tuple(
        huggingface.read_column(unit.paths[0], dataset, field, span.first_line - 1, span.pairs)
        for field in (unit.source_field, unit.target_field)
    )
    return RawSpan(unit, span.first_line, span.pairs, columns)


def _raw_span(unit: Unit, span: Span, data: tuple[bytes, ...]) -> RawSpan:
    if span.first_line == 1:  # a byte order mark is not part of the first sentence
        data = tuple(lines.removeprefix(BYTE_ORDER_MARK) for lines in data)
    return RawSpan(unit, span.first_line, span.pairs, data)


def _changed(path: Path) -> UserError:
    return UserError(f"{path}: was changed while it was read; prepare again")


def _line_ends(data: bytes) -> NDArray[np.int64]:
    """The end offset of each line, including its line feed."""
    return np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == LINE_FEED) + 1


def _decode(unit: Unit, data: Sequence[bytes], numbers: Sequence[int]) -> Columns:
    """Decode the lines with these numbers."""
    sides = [
        decode_lines(path, lines, numbers) for path, lines in zip((*unit.paths, unit.paths[0]), data, strict=False)
    ]
    if unit.kind == "tsv":
        return _split_columns(unit.paths[0], sides[0], numbers)
    if unit.kind == "jsonl":
        return _parse_json(unit, sides[0], numbers)
    return sides[0], sides[1]


def _split_columns(path: Path, lines: list[str], numbers: Sequence[int]) -> Columns:
    rows = [line.split("\t") for line in lines]
    for number, row in zip(numbers, rows, strict=True):
        if len(row) != 2:
            raise UserError(f"{path}: line {number} has {len(row)} columns; allowed is 2, one tab between them")
    return [row[0] for row in rows], [row[1] for row in rows]


def _parse_json(unit: Unit, lines: list[str], numbers: Sequence[int]) -> Columns:
    sources: list[str] = []
    targets: list[str] = []
    for number, line in zip(numbers, lines, strict=True):
        where = f"{unit.paths[0]}: line {number}"
        try:
            tree = parse_json(line)
        except ValueError as error:
            raise UserError(f"{where} is no JSON ({error}); allowed is one object a line") from error
        if not isinstance(tree, dict):
            raise UserError(f"{where} is no JSON object; allowed is one object a line")
        for side, field in zip((sources, targets), (unit.source_field, unit.target_field), strict=True):
            text = _text_at(tree, field, where)
            # Only an escape can contain a line feed, a NUL or half of a surrogate pair.
            side.append(_one_line(text, field, where) if "\\" in line else text)
    return sources, targets


def _text_at(tree: Any, field: str, where: str) -> str:
    text = find(tree, field)
    if text is MISSING:
        raise UserError(f"{where} has no {field}; allowed is a string there (see source_field, target_field)")
    if not isinstance(text, str):
        kind = "null" if text is None else f"a {type(text).__name__}"
        raise UserError(f"{where}: {field} is {kind}; allowed is a string")
    return text


def _one_line(text: str, field: str, where: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UserError(f"{where}: {field} holds half of a surrogate pair; allowed is text") from error
    if "\0" in text:
        raise UserError(f"{where}: {field} holds a NUL; allowed is text")
    return text.translate(ONE_LINE)
