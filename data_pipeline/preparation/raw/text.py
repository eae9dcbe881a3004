"""Text files, of which each line is a pair or one side of it: the base of such formats, and parallel files."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from configs import UserError
from data_pipeline.preparation.raw.lines import LINE_FEED, MAX_TAKE_BYTES, LineReader, decode_lines, packing_of
from data_pipeline.preparation.raw.unit import RawSpan, Span, Unit, changed, line_ends

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True, kw_only=True)
class LineUnit(Unit):
    """Text files of equally many lines. Dividing them only needs a search for line feeds."""

    head_lines: int = 0
    """Lines at the beginning of each file that hold no pair."""

    @property
    def is_seekable(self) -> bool:
        """Whether no file is compressed."""
        return not any(packing_of(path) for path in self.paths)

    @abstractmethod
    def split(self, lines: list[list[str]], numbers: Sequence[int]) -> list[list[str]]:
        """Sources, targets and further texts, of the lines of each file.

        Raises:
            UserError: see `RawSpan.pairs`.
        """

    def decode(self, data: Sequence[bytes], numbers: Sequence[int]) -> list[list[str]]:
        """See `Unit.decode`."""
        lines = [decode_lines(path, lines, numbers) for path, lines in zip(self.paths, data, strict=True)]
        return self.split(lines, numbers)

    def stream(self, number_of_unit: int, first_number: int, span_pairs: int) -> Iterator[tuple[Span, RawSpan]]:
        """See `Unit.stream`."""
        readers = [LineReader(path) for path in self.paths]
        if self.head_lines:
            _take_beside(readers, self.head_lines)
        number, first_line = first_number, 1 + self.head_lines
        while True:
            offsets = tuple(reader.offset for reader in readers)
            data = _take_beside(readers, span_pairs)
            if len({reader.num_lines for reader in readers}) > 1:
                raise self._of_unequal_lengths([reader.count_rest() for reader in readers])
            pairs = readers[0].num_lines - (first_line - 1)
            if not pairs and number == first_number:
                raise UserError(f"{self.paths[0]}: is empty but for its header; it must have at least one line more")
            if not pairs:
                return
            sizes = tuple(reader.offset - offset for reader, offset in zip(readers, offsets, strict=True))
            if not self.is_seekable:
                offsets = sizes = ()
            span = Span(
                unit=number_of_unit, number=number, first_line=first_line, pairs=pairs, offsets=offsets, sizes=sizes
            )
            yield span, self._raw_span(span, data)
            number, first_line = number + 1, first_line + pairs

    def read(self, span: Span) -> RawSpan:
        """See `Unit.read`."""
        assert self.is_seekable
        data = []
        for path, offset, size in zip(self.paths, span.offsets, span.sizes, strict=True):
            try:
                with path.open("rb") as file:
                    file.seek(offset)
                    lines = file.read(size)
            except OSError as error:
                raise UserError(f"{path}: cannot be read: {error.strerror or error}") from error
            if len(lines) < size:
                raise changed(path)
            if not lines.endswith(b"\n"):  # the last line of the file may lack its line feed
                lines += b"\n"
            if np.count_nonzero(np.frombuffer(lines, dtype=np.uint8) == LINE_FEED) != span.pairs:
                raise changed(path)
            data.append(lines)
        return self._raw_span(span, tuple(data))

    def _of_unequal_lengths(self, counts: list[int]) -> UserError:
        other = next(number for number, count in enumerate(counts) if count != counts[0])
        return UserError(
            f"{self.paths[0]}: {counts[0]} lines beside {counts[other]} in {self.paths[other]}; both must have as many"
        )

    def _raw_span(self, span: Span, data: tuple[bytes, ...]) -> RawSpan:
        if span.first_line == 1:  # a byte order mark is not part of the first sentence
            data = tuple(lines.removeprefix(BYTE_ORDER_MARK) for lines in data)
        return RawSpan(self, span.first_line, span.pairs, data)


def _take_beside(readers: Sequence[LineReader], count: int) -> tuple[bytes, ...]:
    """The next lines of each file: as many of all where long lines end one file's part early."""
    before = readers[0].num_lines
    data = [reader.take(count) for reader in readers]
    fewest = min(reader.num_lines for reader in readers) - before
    if fewest and max(map(len, data)) >= MAX_TAKE_BYTES:
        for number, reader in enumerate(readers):
            if more := reader.num_lines - before - fewest:
                end = int(line_ends(data[number])[fewest - 1])
                reader.give_back(data[number][end:], more)
                data[number] = data[number][:end]
    return tuple(data)


@dataclass(frozen=True, slots=True, kw_only=True)
class TextUnit(LineUnit):
    """Parallel files: of sources, of targets, and of each further text."""

    def split(self, lines: list[list[str]], numbers: Sequence[int]) -> list[list[str]]:
        """See `LineUnit.split`."""
        return lines
