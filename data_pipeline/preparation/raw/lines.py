"""Text files as lines, plain or compressed (.gz, .zst, .xz, .bz2), in constant memory.

A line ends at a line feed only (a carriage return before it is dropped): other characters that Python's
`splitlines` takes for line ends stay in the line, so that line N of one file stays beside line N of the
other.
"""

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from configs import CorpusFiles, UserError
from configs.components import RawFiles, Reader
from data_pipeline.preparation.raw.compression import COMPRESSED, decompress, packing

BLOCK_BYTES = 1 << 20
MAX_LINE_BYTES = 16 << 20
HEAD_BYTES = 512
"""Bytes at a file's beginning by which its format is recognised."""
BYTE_ORDER_MARK = "\ufeff"
_MARKUP = re.compile(
    rb"(\xef\xbb\xbf)?\s*<(\?xml\s|!doctype\s|(tmx|xliff|srcset|refset|tstset|mteval|dataset|doc|url|seg)[\s>])",
    re.IGNORECASE,
)
"""Beginnings of XML, of the sets of WMT and IWSLT, and of TMX."""

Split = Callable[[list[list[str]], Sequence[int]], list[list[str]]]
"""Makes columns (sources, targets, and each of the further texts) of the lines of each file and their numbers."""


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


class LineFormat(Reader):
    """A format of text files in which a line is a pair, or one side of it: it is read from any line on."""

    def head_lines(self, files: RawFiles) -> int:
        """Number of lines at the beginning of each file that hold no pair."""
        return 0

    def open(self, files: RawFiles) -> Split:
        """A function that makes pairs of lines; it raises `UserError` for lines that are none.

        Raises:
            UserError: the files do not have the fields.
        """
        raise NotImplementedError


def corpus_paths(files: CorpusFiles, root: str) -> list[Path]:
    """All files or folders of a corpus: source 1, target 1, source 2, ..., or those with both sides in order."""
    return [Path(root) / name for names in files.units for name in names]


def byte_lines(path: Path) -> Iterator[bytes]:
    """The lines of a text file without their line feeds. Raises `UserError` as `line_blocks` does."""
    return itertools.chain.from_iterable(line_blocks(path))


def line_blocks(path: Path, offset: int = 0) -> Iterator[list[bytes]]:
    """The lines of a text file without their line feeds, some at a time, from an offset in bytes.

    Raises:
        UserError: during reading, if the file is empty, no text, or cannot be read, or a line is too long.
    """
    pieces, size, is_empty = list[bytes](), 0, not offset
    for block in _plain_blocks(path, offset) if offset else read_blocks(path):
        lines = block.split(b"\n")
        pieces.append(lines[0])
        size += len(lines[0])
        if size > MAX_LINE_BYTES:
            raise UserError(f"{path}: has a line of more than {MAX_LINE_BYTES} bytes; allowed is text in lines")
        if len(lines) > 1:
            lines[0] = b"".join(pieces)
            pieces, is_empty = [lines.pop()], False
            size = len(pieces[0])
            yield lines
    if size:  # the last line may lack its line feed
        yield [b"".join(pieces)]
    elif is_empty:
        raise UserError(f"{path}: is empty; it must have at least one line")


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
        raise UserError(f"{path}: line {line} holds a NUL byte; allowed is text in UTF-8")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = numbers[data.count(b"\n", 0, error.start)]
        raise UserError(f"{path}: line {line} is not UTF-8; convert the file to it, as by iconv") from error
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
        UserError: it is missing, unreadable, broken or truncated, or XML. The message names it.
    """
    blocks, head = unpacked_blocks(path), b""
    for block in blocks:
        head += block
        if len(head) >= HEAD_BYTES:
            break
    if _MARKUP.match(head):
        raise UserError(
            f"{path}: is XML or SGML, whose markup would be taken for sentences; name TMX in `files`, with reader=tmx; "
            "`sacrebleu -t wmt20 -l en-de --echo src` and `--echo ref` write the text of a set of WMT"
        )
    yield head
    yield from blocks


def unpacked_blocks(path: Path) -> Iterator[bytes]:
    """The decompressed bytes of a file of any format.

    Raises:
        UserError: during reading, if it is missing, unreadable, broken or truncated. The message names it.
    """
    blocks = _plain_blocks(path)
    head = next(blocks, b"")
    suffix = path.suffix.lower() if path.suffix.lower() in COMPRESSED else packing(head)
    blocks = itertools.chain([head], blocks)
    yield from decompress(path, blocks, suffix) if suffix else blocks


def _plain_blocks(path: Path, offset: int = 0) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            if offset:  # a pipe has no other
                file.seek(offset)
            yield from iter(lambda: file.read(BLOCK_BYTES), b"")
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
