"""Raw parallel text, streamed: plain, .gz, .zst; two files side by side, or one with two columns.

A line ends at a line feed only (a carriage return before it is dropped): other characters that Python's
`splitlines` takes for line ends stay in the line, so that line N of one file stays beside line N of the
other.
"""

import gzip
import itertools
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import zstandard

from configs import CorpusFiles, UserError

CHUNK_BYTES = 1 << 20
MAX_LINE_BYTES = 16 << 20
UNSUPPORTED = frozenset(
    {".bz2", ".xz", ".lzma", ".lz4", ".br", ".z", ".zip", ".7z", ".rar", ".tar", ".tgz", ".parquet", ".pdf"}
)


@dataclass(frozen=True, slots=True)
class TextChunk:
    """Consecutive lines of one pair of files."""

    source_file: str
    target_file: str
    first_line: int
    """Number of the first line, from 1."""
    sources: list[str]
    targets: list[str]

    def where(self, row: int) -> str:
        """File and line of a row, for messages."""
        return f"{self.source_file}: line {self.first_line + row}"


def corpus_paths(files: CorpusFiles, root: str) -> list[Path]:
    """Every file of a corpus, in the order source 1, target 1, source 2, ... or in that of the TSV files."""
    names = files.tsv or list(itertools.chain.from_iterable(zip(files.source, files.target, strict=True)))
    return [Path(root) / name for name in names]


def read_chunks(files: CorpusFiles, root: str, size: int) -> Iterator[TextChunk]:
    """All pairs of a corpus in chunks of `size` lines; a file's last chunk may be shorter.

    Raises:
        UserError: a file is missing, empty, unreadable, cut short, not UTF-8, holds a NUL byte, has another
            number of lines than the file beside it, or a row without exactly two columns. The message names
            file and line.
    """
    paths = corpus_paths(files, root)
    if files.tsv:
        for path in paths:
            yield from _read_tsv(path, size)
    else:
        for source, target in zip(paths[::2], paths[1::2], strict=True):
            yield from _read_beside(source, target, size)


def read_lines(path: Path) -> Iterator[str]:
    """The lines of one text file, without their ends.

    Raises:
        UserError: as for `read_chunks`.
    """
    number = 0
    for block in _whole_lines(path):
        yield from _decode(path, block, number)
        number += block.count(b"\n")
    if number == 0:
        raise UserError(f"{path}: is empty; allowed is text with at least one line")


def _read_beside(source: Path, target: Path, size: int) -> Iterator[TextChunk]:
    sources, targets = read_lines(source), read_lines(target)
    first = 1
    while True:
        left, right = list(itertools.islice(sources, size)), list(itertools.islice(targets, size))
        if len(left) != len(right):
            counts = first - 1 + len(left) + _count(sources), first - 1 + len(right) + _count(targets)
            raise UserError(f"{source}: {counts[0]} lines beside {counts[1]} in {target}; allowed is the same number")
        if not left:
            return
        yield TextChunk(str(source), str(target), first, left, right)
        first += len(left)


def _read_tsv(path: Path, size: int) -> Iterator[TextChunk]:
    lines = read_lines(path)
    first = 1
    while rows := list(itertools.islice(lines, size)):
        columns = [row.split("\t") for row in rows]
        for number, row in enumerate(columns, start=first):
            if len(row) != 2:
                raise UserError(f"{path}: line {number} has {len(row)} columns; allowed is 2, one tab between them")
        yield TextChunk(str(path), str(path), first, [c[0] for c in columns], [c[1] for c in columns])
        first += len(rows)


def _count(lines: Iterable[str]) -> int:
    return sum(1 for _ in lines)


def _whole_lines(path: Path) -> Iterator[bytes]:
    """The file's bytes, cut after line feeds; the last line gets one where it has none."""
    pending: list[bytes] = []
    held = 0
    for chunk in _open(path):
        cut = chunk.rfind(b"\n") + 1
        if cut:
            yield b"".join([*pending, chunk[:cut]])
            pending, held = [], 0
        pending.append(chunk[cut:])
        held += len(chunk) - cut
        if held > MAX_LINE_BYTES:
            raise UserError(f"{path}: has a line of more than {MAX_LINE_BYTES} bytes; allowed is text in lines")
    if held:
        yield b"".join([*pending, b"\n"])


def _decode(path: Path, block: bytes, lines_before: int) -> Sequence[str]:
    try:
        text = block.decode("utf-8")
    except UnicodeDecodeError as error:
        line = lines_before + block.count(b"\n", 0, error.start) + 1
        raise UserError(f"{path}: line {line} is not UTF-8; allowed is UTF-8 text") from error
    if "\0" in text:
        line = lines_before + text.count("\n", 0, text.index("\0")) + 1
        raise UserError(f"{path}: line {line} holds a NUL byte; allowed is text")
    if lines_before == 0:
        text = text.removeprefix("\ufeff")  # a byte order mark is no part of the first sentence
    lines = text[:-1].split("\n")
    return [line.removesuffix("\r") for line in lines] if "\r" in text else lines


def _open(path: Path) -> Iterator[bytes]:
    """The decompressed bytes of a file, in pieces; every way of not being readable becomes a `UserError`."""
    suffix = path.suffix.lower()
    if suffix in UNSUPPORTED:
        raise UserError(f"{path}: {suffix} cannot be read; allowed is plain text, .gz or .zst")
    if path.is_dir():
        raise UserError(f"{path}: is a folder; allowed is a text file")
    try:
        if suffix == ".gz":
            yield from _gzip(path)
        elif suffix == ".zst":
            yield from _zstandard(path)
        else:
            with path.open("rb") as file:
                while chunk := file.read(CHUNK_BYTES):
                    yield chunk
    except FileNotFoundError as error:
        raise UserError(f"{path}: no such file") from error
    except EOFError as error:
        raise UserError(f"{path}: is cut short: its compressed data ends early") from error
    except (gzip.BadGzipFile, zlib.error, zstandard.ZstdError) as error:
        raise UserError(f"{path}: is broken: {' '.join(str(error).split())}") from error
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from error


def _gzip(path: Path) -> Iterator[bytes]:
    with gzip.open(path, "rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk


def _zstandard(path: Path) -> Iterator[bytes]:
    """Frame after frame. zstandard's own `stream_reader` ends a frame that is cut short without an error."""
    with path.open("rb") as file:
        frame = zstandard.ZstdDecompressor().decompressobj()
        started = False
        while data := file.read(CHUNK_BYTES // 8):
            while data:
                started = True
                yield frame.decompress(data)
                data = b""
                if frame.eof:
                    data = frame.unused_data
                    frame, started = zstandard.ZstdDecompressor().decompressobj(), False
        if started:
            raise EOFError
