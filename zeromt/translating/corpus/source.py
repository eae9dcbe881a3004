"""The input of a corpus: files cut into chunks by line numbers, in a table that all parts share.

Nothing of it grows in memory with the corpus: the table is a file, of which a row is read at a time.
"""

import hashlib
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from configs import UserError
from configs.process.files import inside, status_of
from configs.process.progress import Progress
from data_pipeline.preparation.raw.lines import LineReader, decode_lines, packing_of

ROW = np.dtype(
    [("file", "<u4"), ("lines", "<u4"), ("first", "<u8"), ("offset", "<u8"), ("bytes", "<u8"), ("sha", "S32")]
)
"""A chunk: number of its file; lines; number of the first line, from 1, over all files; offset and bytes of its text,
decompressed, with a line feed behind each line; their SHA-256."""
_SHA_BYTES = 32
_BYTE_ORDER_MARK = "\ufeff"


class Chunk:
    """A row of the table."""

    def __init__(self, number: int, row: np.void) -> None:
        self.number = number
        self.file, self.lines, self.first = int(row["file"]), int(row["lines"]), int(row["first"])
        self.offset, self.bytes = int(row["offset"]), int(row["bytes"])
        self.sha = bytes(row["sha"]).ljust(_SHA_BYTES, b"\0")  # numpy drops zeros at the end

    @property
    def last(self) -> int:
        """The number of its last line."""
        return self.first + self.lines - 1


def survey(files: Sequence[Path], table: Path, chunk_lines: int) -> None:
    """Cut files into chunks of `chunk_lines` lines; a file's last chunk has fewer, and one of very long lines, too.

    Args:
        files: of text, perhaps compressed, in their order.
        table: the file to write.
        chunk_lines: lines of a chunk.

    Raises:
        UserError: a file is missing, empty, compressed badly, or a line of it is no UTF-8 text.
    """
    row, first = np.zeros(1, ROW), 1
    with inside.replacing(table, sync=True) as out, Progress("reading", unit="lines") as progress:
        for number, path in enumerate(files):
            reader, begin = LineReader(path), first
            while True:
                offset = reader.offset
                before = reader.num_lines
                if not (text := reader.take(chunk_lines)):
                    break
                lines = reader.num_lines - before
                decode_lines(path, text, range(first - begin + 1, first - begin + 1 + lines))
                row[0] = (number, lines, first, offset, len(text), hashlib.sha256(text).digest())
                out.write(row.tobytes())
                first += lines
                progress.advance(lines)


class Corpus:
    """The input, as its table has it.

    Args:
        files: of text.
        table: from `survey`.
    """

    def __init__(self, files: Sequence[Path], table: Path) -> None:
        self.files = files
        self._table = np.memmap(table, ROW, "r")
        self.num_chunks = len(self._table)
        self.num_lines = self.chunk(self.num_chunks - 1).last

    def chunk(self, number: int) -> Chunk:
        """A row of the table."""
        return Chunk(number, self._table[number])

    def lines_of(self, numbers: range) -> int:
        """How many lines some chunks have."""
        return int(self._table["lines"][numbers.start : numbers.stop : numbers.step].sum())

    def begin_of(self, file: int) -> int:
        """The number of a file's first line, over all files, from 1."""
        return int(self._table["first"][np.searchsorted(self._table["file"], file)])

    def read(self, numbers: Iterator[int]) -> Iterator[tuple[Chunk, list[str]]]:
        """Chunks with their lines.

        Args:
            numbers: of the chunks, ascending.

        Raises:
            UserError: the text is not what it was.
        """
        for file, group in itertools.groupby(map(self.chunk, numbers), lambda chunk: chunk.file):
            path = self.files[file]
            read = self._skipping if packing_of(path) else _seeking
            texts = read(path, group)
            for chunk, text in texts:
                if hashlib.sha256(text).digest() != chunk.sha:
                    first, last = self.of_file(chunk, 0), self.of_file(chunk, chunk.lines - 1)
                    raise UserError(
                        f"--input: {path}: lines {first} to {last} are not what they were when the translation was "
                        "begun; give the same text, or another -o"
                    )
                yield chunk, self.decoded(chunk, text)

    def of_file(self, chunk: Chunk, row: int) -> int:
        """The number of a chunk's line in its file, from 1."""
        return chunk.first + row - self.begin_of(chunk.file) + 1

    def decoded(self, chunk: Chunk, text: bytes) -> list[str]:
        """The lines of a chunk's text."""
        begin = self.of_file(chunk, 0)
        lines = decode_lines(self.files[chunk.file], text, range(begin, begin + text.count(b"\n")))
        if begin == 1 and lines:
            lines[0] = lines[0].removeprefix(_BYTE_ORDER_MARK)
        return lines

    def _skipping(self, path: Path, chunks: Iterator[Chunk]) -> Iterator[tuple[Chunk, bytes]]:
        """Of a compressed file, which is read from its beginning."""
        reader, at = LineReader(path), None
        for chunk in chunks:
            at = int(np.searchsorted(self._table["file"], chunk.file)) if at is None else at
            for number in range(at, chunk.number):
                reader.take(self.chunk(number).lines)
            yield chunk, reader.take(chunk.lines)
            at = chunk.number + 1


def _seeking(path: Path, chunks: Iterator[Chunk]) -> Iterator[tuple[Chunk, bytes]]:
    try:
        with path.open("rb") as file:
            for chunk in chunks:
                file.seek(chunk.offset)
                text = file.read(chunk.bytes)
                yield chunk, text if text.endswith(b"\n") else text + b"\n"
    except OSError as error:
        raise UserError(f"--input: {path}: cannot be read: {error.strerror or error}") from error


def sizes(files: Sequence[Path]) -> list[int]:
    """Bytes of the files as they are on disk.

    Raises:
        UserError: one is missing.
    """
    found = []
    for path in files:
        if (status := status_of(path)) is None:
            raise UserError(f"--input: {str(path)!r}: no such file; give a file that exists")
        found.append(status.st_size)
    return found
