"""Text files as lines, plain or compressed (.gz, .zst, .xz, .bz2), in constant memory.

A line ends at a line feed only (a carriage return before it is dropped): other characters that Python's
`splitlines` takes for line ends stay in the line, so that line N of one file stays beside line N of the
other.
"""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from configs import CorpusFiles, UserError
from data_pipeline.preparation.raw.compression import COMPRESSED, decompress, packing

BLOCK_BYTES = 1 << 20
MAX_LINE_BYTES = 16 << 20
LINES_AT_ONCE = 1 << 16
MAX_TAKE_BYTES = 128 << 20
"""About the most bytes of lines that are read at a time."""
UNSUPPORTED = frozenset({".lzma", ".lz4", ".br", ".z", ".zip", ".7z", ".rar", ".tar", ".tgz", ".pdf"})
LINE_FEED = 10

MARKED_UP = {".tmx": "TMX", ".sgm": "SGML", ".sgml": "SGML", ".xml": "XML", ".xlf": "XLIFF", ".xliff": "XLIFF"}
HEAD_BYTES = 512
"""Bytes at a file's beginning by which its format is recognised."""

_OTHER_ENCODINGS = {
    b"\xff\xfe\0\0": "UTF-32",
    b"\0\0\xfe\xff": "UTF-32",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}
"""Encodings by byte order mark, longer marks first."""
_NOT_TEXT = {
    b"PK\x03\x04": "a ZIP archive",
    b"PAR1": "Parquet",
    b"7z\xbc\xaf\x27\x1c": "a 7-Zip archive",
    b"Rar!\x1a": "a RAR archive",
    b"%PDF-": "PDF",
    b"\x04\x22\x4d\x18": "compressed with lz4",
}
_MARKUP = re.compile(
    rb"(\xef\xbb\xbf)?\s*<(\?xml\s|!doctype\s|(tmx|xliff|srcset|refset|tstset|mteval|dataset|doc|url|seg)[\s>])",
    re.IGNORECASE,
)
"""Beginnings of XML, of the sets of WMT and IWSLT, and of TMX."""


@dataclass(frozen=True, slots=True)
class TextChunk:
    """Consecutive pairs of one unit of a corpus."""

    source_file: str
    target_file: str
    first_line: int
    """Number of the first line, from 1."""
    sources: list[str]
    targets: list[str]
    extra: Mapping[str, list[str]] = field(default_factory=dict)
    """Further texts of each pair by name, such as scores; "" where a pair has none."""

    def where(self, row: int) -> str:
        """File and line of a row, for messages."""
        return f"{self.source_file}: line {self.first_line + row}"


def corpus_paths(files: CorpusFiles, root: str) -> list[Path]:
    """All files or folders of a corpus: source 1, target 1, source 2, ..., or those of another format in order."""
    if files.form is None:
        return []
    names = getattr(files, files.form, ())
    if files.form == "text":
        names = itertools.chain.from_iterable(zip(files.source, files.target, strict=True))
    return [Path(root) / name for name in names]


class LineReader:
    """Reads the bytes of a text file, a number of lines at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.offset = 0
        """Bytes handed out."""
        self.num_lines = 0
        """Lines handed out."""
        self._blocks = filter(None, read_blocks(path))  # a decompressor may have no output yet
        self._rest = b""
        self._has_added = False

    def take(self, count: int) -> bytes:
        """The next `count` lines, or those that are left; each ends in a line feed.

        Fewer where lines are long: the last is the one with which there are MAX_TAKE_BYTES.

        Raises:
            UserError: the file is empty or cannot be read (see `read_blocks`), or a line is too long.
        """
        pieces: list[bytes] = []
        missing, unfinished, size = count, 0, 0
        while missing and (unfinished or size < MAX_TAKE_BYTES) and (block := self._rest or next(self._blocks, b"")):
            self._rest = b""
            is_feed = np.frombuffer(block, dtype=np.uint8) == LINE_FEED
            num_feeds = int(np.count_nonzero(is_feed))
            if num_feeds >= missing or size + len(block) >= MAX_TAKE_BYTES:
                feeds = np.flatnonzero(is_feed)
                last = min(missing - 1, int(np.searchsorted(feeds, MAX_TAKE_BYTES - size - 1)))
                if last < num_feeds:
                    end, num_feeds = int(feeds[last]) + 1, last + 1
                    block, self._rest = block[:end], block[end:]
            pieces.append(block)
            missing -= num_feeds
            size += len(block)
            unfinished = len(block) - (block.rfind(b"\n") + 1) + (0 if num_feeds else unfinished)
            if unfinished > MAX_LINE_BYTES:
                raise UserError(
                    f"{self.path}: has a line of more than {MAX_LINE_BYTES} bytes; allowed is text in lines"
                )
        self.offset += size
        self._has_added = unfinished > 0
        if unfinished:  # the last line of the file, which may lack its line feed
            pieces.append(b"\n")
            missing -= 1
        self.num_lines += count - missing
        if self.num_lines == 0:
            raise UserError(f"{self.path}: is empty; it must have at least one line")
        return b"".join(pieces)

    def give_back(self, data: bytes, count: int) -> None:
        """Let the next `take` begin with the last `count` lines of what the last one gave, `data`."""
        data = data.removesuffix(b"\n") if self._has_added else data
        self._rest = data + self._rest
        self.offset -= len(data)
        self.num_lines -= count

    def lines(self) -> Iterator[str]:
        """The lines that are left, as text.

        Raises:
            UserError: as `take` and `decode_lines`.
        """
        while text := self.take(LINES_AT_ONCE):
            last = self.num_lines
            yield from decode_lines(self.path, text, range(last - text.count(b"\n") + 1, last + 1))

    def count_rest(self) -> int:
        """Read to the end; returns the number of lines of the whole file."""
        while self.take(LINES_AT_ONCE):
            pass
        return self.num_lines


def decode_lines(path: Path, data: bytes, numbers: Sequence[int]) -> list[str]:
    """Decode lines, without their line feeds.

    Args:
        path: of their file, for messages.
        data: the lines, each with a line feed.
        numbers: the line number of each.

    Raises:
        UserError: a line is not UTF-8 or holds a NUL byte.
    """
    if b"\0" in data:
        line = numbers[data.count(b"\n", 0, data.index(b"\0"))]
        raise UserError(f"{path}: line {line} holds a NUL byte; allowed is text")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = numbers[data.count(b"\n", 0, error.start)]
        raise UserError(f"{path}: line {line} is not UTF-8; allowed is UTF-8 text") from error
    lines = text.split("\n")
    lines.pop()
    return [line.removesuffix("\r") for line in lines] if "\r" in text else lines


def packing_of(path: Path) -> str:
    """A file's compression, by its name or else by its first bytes; "" if it is not compressed.

    For anything but a regular file only the name counts, as a pipe can be read only once.
    """
    if (suffix := path.suffix.lower()) in COMPRESSED:
        return suffix
    try:
        if not path.is_file():
            return ""
        with path.open("rb") as file:
            return packing(file.read(HEAD_BYTES))
    except OSError:  # reading it will raise the error
        return ""


def read_blocks(path: Path) -> Iterator[bytes]:
    """The decompressed bytes of a text file, in pieces that need not end with a line.

    Raises:
        UserError: it is missing, unreadable, of an unknown format, broken or truncated. The message names it.
    """
    check_form(path)
    yield from _text(path, unpacked_blocks(path))


def unpacked_blocks(path: Path) -> Iterator[bytes]:
    """The decompressed bytes of a file of any format.

    Raises:
        UserError: during reading, if it is missing, unreadable, broken or truncated. The message names it.
    """
    if path.is_dir():
        raise UserError(f"{path}: is a folder; give a text file")
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
            suffix = path.suffix.lower()
            suffix = suffix if suffix in COMPRESSED else packing(head)
            blocks = itertools.chain([head], iter(lambda: file.read(BLOCK_BYTES // (8 if suffix else 1)), b""))
            yield from decompress(path, blocks, suffix) if suffix else blocks
    except FileNotFoundError as error:
        raise UserError(f"{path}: no such file") from error
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from error


def unpacked(path: Path, head: bytes, blocks: Iterator[bytes]) -> Iterator[bytes] | None:
    """The decompressed bytes of a stream; None if it does not begin like a compressed file.

    Args:
        path: its name, for messages.
        head: its first bytes, already read.
        blocks: the rest.

    Raises:
        UserError: during reading, if it is broken or truncated.
    """
    suffix = packing(head)
    return decompress(path, itertools.chain([head], blocks), suffix) if suffix else None


def _text(path: Path, blocks: Iterator[bytes]) -> Iterator[bytes]:
    """The same blocks, after a check of the beginning.

    Raises:
        UserError: the beginning is of something other than UTF-8 text in lines.
    """
    head = b""
    for block in blocks:
        head += block
        if len(head) >= HEAD_BYTES:
            break
    for mark, name in _OTHER_ENCODINGS.items():
        if head.startswith(mark):
            raise UserError(f"{path}: is {name}; convert it with `iconv -f {name} -t UTF-8`")
    for magic, name in _NOT_TEXT.items():
        if head.startswith(magic):
            advice = ", or `parquet` of the corpus names it" if name == "Parquet" else ""
            raise UserError(f"{path}: is {name}; allowed is text, a sentence a line{advice}")
    if _MARKUP.match(head):
        raise _marked_up(path, "TMX" if b"<tmx" in head else "XML or SGML")
    yield head
    yield from blocks


def check_form(path: Path) -> None:
    """Refuse a file whose name says that it is not text in lines.

    Raises:
        UserError: it is such a file.
    """
    suffix = path.suffix.lower()
    if suffix in UNSUPPORTED:
        raise UserError(f"{path}: {suffix} cannot be read; allowed is plain text, .gz, .zst, .xz or .bz2")
    inner = path.with_suffix("").suffix.lower() if suffix in COMPRESSED else suffix
    if inner in MARKED_UP:
        raise _marked_up(path, MARKED_UP[inner])


def _marked_up(path: Path, form: str) -> UserError:
    advice = (
        "name it in `tmx` of the corpus, or take the corpus as Moses text, which OPUS offers"
        if form == "TMX"
        else "`sacrebleu -t wmt20 -l en-de --echo src` and `--echo ref` write the text of a set of WMT"
    )
    return UserError(
        f"{path}: is {form}, whose markup would be taken for sentences; allowed is text, a sentence a line: {advice}"
    )
