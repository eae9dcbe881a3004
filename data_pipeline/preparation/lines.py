"""Text files as lines, plain or compressed (.gz, .zst), in constant memory, and fields by name in them.

A line ends at a line feed only (a carriage return before it is dropped): other characters that Python's
`splitlines` takes for line ends stay in the line, so that line N of one file remains the partner of line N of the
other.

Memory is constant whatever a few bytes expand to, and whatever window a file asks for. A field such as
`translation.en` is the key of this name or, if there is none, a path of keys; a key may itself contain dots.
"""

import itertools
import json
import numbers
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import zstandard

from configs import CorpusFiles, UserError
from configs.components import RawFiles, Reader

MAX_WINDOW = 256 << 20
"""Most bytes of earlier text that a file may have its reader keep, as `zstd --long=28` does."""
ZSTD_SLICE = 2048
"""Compressed bytes given to zstandard at a time, as it cannot bound its output: four bytes become 128 KiB at most, so a
slice becomes 64 MiB at most. Larger slices are not faster."""

_MAGIC = {b"\x1f\x8b\x08": ".gz", b"\x28\xb5\x2f\xfd": ".zst"}
COMPRESSED: dict[str, Callable[[], Any]] = {
    ".gz": lambda: zlib.decompressobj(wbits=zlib.MAX_WBITS | 16),
    ".zst": lambda: zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW).decompressobj(),
}
BLOCK_BYTES = 1 << 20
"""That are read at a time, and most of a piece of decompressed data."""
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
MAX_NAMES = 12
NAME_CHARACTERS = 60
"""The most that a message shows."""
_ONE_LINE = str.maketrans("\n\r", "  ")


def packing(head: bytes) -> str:
    """The compression recognised from a file's first bytes; "" if it is not compressed."""
    return next((suffix for magic, suffix in _MAGIC.items() if head.startswith(magic)), "")


def decompress(path: Path, blocks: Iterator[bytes], suffix: str) -> Iterator[bytes]:
    """Decompress all streams of a file, in pieces of at most BLOCK_BYTES.

    The libraries' own file readers are not suitable: zstandard's ends a truncated frame without an error, and none can
    read a pipe whose first bytes were read already.

    Args:
        path: its name, for messages.
        blocks: its bytes.
        suffix: of `COMPRESSED`.

    Raises:
        UserError: during reading, if it is broken, truncated, or needs a larger window than MAX_WINDOW.
    """
    make = COMPRESSED[suffix]
    stream, started, is_first = make(), False, True
    for block in blocks:
        data = block
        while data := data if started or is_first else data.lstrip(b"\0"):  # zeros may pad streams
            now, data = (data[:ZSTD_SLICE], data[ZSTD_SLICE:]) if suffix == ".zst" else (data, b"")
            try:
                yield from _pieces(stream, now, suffix)
            except (zstandard.ZstdError, zlib.error) as error:
                raise _broken(path, error) from error
            started = True
            if stream.eof:
                data = stream.unused_data + data
                stream, started, is_first = make(), False, False
    if started:
        raise UserError(f"{path}: is cut short: its compressed data ends early")


def _pieces(stream: Any, data: bytes, suffix: str) -> Iterator[bytes]:
    """What one more block becomes."""
    if suffix == ".zst":
        text = stream.decompress(data)
        yield from (text[i : i + BLOCK_BYTES] for i in range(0, len(text), BLOCK_BYTES))
        return
    yield stream.decompress(data, BLOCK_BYTES)
    while stream.unconsumed_tail:
        yield stream.decompress(stream.unconsumed_tail, BLOCK_BYTES)


def _broken(path: Path, error: Exception) -> UserError:
    text = " ".join(str(error).split())
    if "memory" in text.lower():  # zstandard gives the reason as text alone
        return UserError(
            f"{path}: needs a window of more than {MAX_WINDOW >> 20} MiB to decompress; compress it again: "
            f"`zstd -dc --long=31 {path.name} | zstd -9`"
        )
    return UserError(f"{path}: is broken: {text}")


@dataclass(frozen=True, slots=True)
class TextChunk:
    """Consecutive pairs of one unit of a corpus."""

    file: str
    """Of the pair, or of its source."""
    first_line: int
    """Number of the first line, from 1."""
    sources: list[str]
    targets: list[str]
    extra: Mapping[str, list[str]] = field(default_factory=dict)
    """Further texts of each pair by name, such as scores; "" where a pair has none."""

    def where(self, row: int) -> str:
        """File and line of a row, for messages."""
        return f"{self.file}: line {self.first_line + row}"


class LineFormat(Reader):
    """A format of text files in which a line is a pair or one of its sides: it can be read from any line on."""

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


def find(tree: Any, field: str) -> Any:
    """The value of a field, None if there is none: of the key with exactly this name, else at a path of keys.

    Of several paths the one with the longest first key is taken. `Dataset.flatten()` makes keys such as
    `translation.en`.
    """
    if not isinstance(tree, dict):
        return None
    if field in tree:
        return tree[field]
    end = field.rfind(".")
    while end >= 0:
        if (value := find(tree.get(field[:end]), field[end + 1 :])) is not None:
            return value
        end = field.rfind(".", 0, end)
    return None


def texts_of(tree: Any, fields: Sequence[str], where: str) -> list[str]:
    """The source, the target and the further texts of an object or row; further numbers and lists as JSON.

    Args:
        tree: the object.
        fields: of the texts, in this order.
        where: file and line, for messages.

    Raises:
        UserError: a side is not a string.
    """
    values = [find(tree, name) for name in fields]
    for value, name in zip(values[:2], fields, strict=False):
        if not isinstance(value, str):
            kind = "missing" if value is None else f"a {type(value).__name__}"
            raise UserError(f"{where}: {name} is {kind}; allowed is a string there (source_field, target_field)")
    return [on_one_line(value if isinstance(value, str) else _further(value)) for value in values]


def _further(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, numbers.Number):
        return str(value)
    return json.dumps(value, ensure_ascii=False, default=str)


def checked(text: str, where: str) -> str:
    """The text on one line.

    Raises:
        UserError: it cannot be a line of a file. The message begins with `where`.
    """
    if len(text) > MAX_LINE_BYTES or "\0" in text:
        raise UserError(f"{where}: holds a NUL, or more than {MAX_LINE_BYTES} characters; allowed is text")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UserError(f"{where}: holds half of a surrogate pair; allowed is text") from error
    return on_one_line(text)


def on_one_line(text: str) -> str:
    """The text with spaces for line ends."""
    return text.translate(_ONE_LINE) if "\n" in text or "\r" in text else text


def listed(names: Iterable[str]) -> str:
    """Names that a file has, for a message: the first few, whatever is in them."""
    first = [on_one_line(name)[:NAME_CHARACTERS] for name in itertools.islice(names, MAX_NAMES)]
    return ", ".join(first) or "none"
