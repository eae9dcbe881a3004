"""The input of `zeromt translate`: chunks of lines, alone, with translations to score, or with prefixes."""

import contextlib
import itertools
import os
import select
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, TypeVar

from configs import UserError
from configs.process.files import explain, status_of
from data_pipeline.preparation.raw.compression import COMPRESSED
from data_pipeline.preparation.raw.lines import MAX_LINE_BYTES, read_blocks, unpacked
from zeromt.translating.worker import Chunk

CHUNK_LINES = 2048
"""Lines that are read, sorted by length and translated together; fewer if no more come for a while."""
CHUNK_CHARACTERS = 16 << 20
"""Fewer, too, where they are long."""
IDLE_SECONDS = 0.2
"""Seconds after which a silent pipe or terminal is idle: the lines so far are translated."""
PATIENCE_SECONDS = 1.0
"""The same for the total time waited since lines were last translated, for an input that trickles."""
READ_BYTES = 1 << 20
BYTE_ORDER_MARK = "\ufeff"

T = TypeVar("T")
U = TypeVar("U")


def read_chunks(
    stack: contextlib.ExitStack, input: str | None, target: str | None, prefix: str | None, *, is_scored: bool
) -> Iterator[Chunk | None]:
    """The input in chunks, with None where it pauses; the files are opened immediately.

    Files may be compressed (.gz, .zst, .xz, .bz2). A byte order mark at their beginning is ignored.
    """
    name = input or "standard input"
    lines = _lines(_blocks(stack, input, "--input"), name)
    beside, option = (target, "--target") if target is not None else (prefix, "--prefix")
    if beside is not None:
        pairs = _paired(lines, _lines(_blocks(stack, beside, option), beside), option)
        return _cut(pairs, "targets" if is_scored else "prefixes")
    if is_scored:
        numbers = itertools.count(1)
        return _cut(but_pauses(lambda line: _split(line, name, next(numbers)), lines), "targets")
    return _cut(but_pauses(lambda line: (line,), lines))


def count_lines(name: str | None) -> int | None:
    """Number of lines to translate, for a progress bar; None if it is known only at the end of the input.

    Args:
        name: of the input; None for standard input, which may be a file too (`< FILE`). Errors are left to
            `read_chunks`.
    """
    with contextlib.suppress(OSError, ValueError, UserError):
        if name is None:
            descriptor = sys.stdin.fileno()
            begin = os.lseek(descriptor, 0, os.SEEK_CUR)  # a pipe has no position
            file = Path(f"/proc/self/fd/{descriptor}")
        else:
            begin, file = 0, Path(name)
        if not stat.S_ISREG(file.stat().st_mode):
            return None
        with file.open("rb") as opened:  # opened again, for a position of its own
            opened.seek(begin)
            blocks: Iterator[bytes | None] = iter(lambda: opened.read(READ_BYTES), b"")
            number, last = 0, b"\n"
            for block in filter(None, _unpacked(blocks, str(name))):
                number, last = number + block.count(b"\n"), block[-1:]
            return number + (last != b"\n")
    return None


def but_pauses(function: Callable[[T], U], items: Iterable[T | None]) -> Iterator[U | None]:
    """What a function makes of each item; None, where the input pauses, stays."""
    return (None if item is None else function(item) for item in items)


def _cut(rows: Iterable[Sequence[str] | None], *beside: str) -> Iterator[Chunk | None]:
    """Chunks of at most CHUNK_LINES, or CHUNK_CHARACTERS; where the input pauses, the lines so far, then None.

    Args:
        rows: of each line, its source and what stands beside it.
        beside: the field of `Chunk` for what stands beside.
    """
    held: list[Sequence[str]] = []
    first = size = 0

    def chunk() -> Chunk:
        columns = map(list, zip(*held, strict=True))
        return Chunk(first=first, **dict(zip(("sources", *beside), columns, strict=True)))

    for row in rows:
        if row is not None:
            held.append(row)
            size += sum(map(len, row))
        if held and (row is None or len(held) == CHUNK_LINES or size >= CHUNK_CHARACTERS):
            yield chunk()
            first, size = first + len(held), 0
            held.clear()
        if row is None:
            yield None
    if held:
        yield chunk()


def _split(line: str, name: str, number: int) -> tuple[str, str]:
    source, tab, target = line.partition("\t")
    if not tab or "\t" in target:
        raise UserError(f"{name}: line {number} has {line.count(chr(9))} tabs; a line is source TAB translation")
    return source, target


def _paired(lines: Iterator[str | None], others: Iterator[str | None], option: str) -> Iterator[tuple[str, str] | None]:
    beside, numbers = (other for other in others if other is not None), itertools.count(1)

    def pair(line: str) -> tuple[str, str]:
        number = next(numbers)
        for other in beside:
            return line, other
        raise UserError(f"{option}: this file ends before line {number} of the input; it must have a line for each")

    yield from but_pauses(pair, lines)
    for _ in beside:
        raise UserError(
            f"{option}: the input ends before line {next(numbers)} of this file; it must have a line for each"
        )


def _lines(blocks: Iterator[bytes | None], name: str) -> Iterator[str | None]:
    """Lines end only at line feeds, so that input and output have the same number of lines."""
    rest, number = b"", 0
    for block in blocks:
        if block is None:
            yield None
            continue
        *whole, rest = (rest + block).split(b"\n")
        for raw in whole:
            number += 1
            yield _decoded(raw, name, number)
        if len(rest) > MAX_LINE_BYTES:
            raise UserError(f"{name}: line {number + 1} has more than {MAX_LINE_BYTES} bytes; allowed is text in lines")
    if rest:
        yield _decoded(rest, name, number + 1)


def _decoded(raw: bytes, name: str, number: int) -> str:
    try:
        text = raw.decode("utf-8").rstrip("\r")
    except UnicodeDecodeError as error:
        raise UserError(f"{name}: line {number} is not UTF-8") from error
    return text.removeprefix(BYTE_ORDER_MARK) if number == 1 else text


def _blocks(stack: contextlib.ExitStack, name: str | None, option: str) -> Iterator[bytes | None]:
    """The bytes of a file or of standard input, and None when a pipe or a terminal pauses."""
    if name is None:
        return _unpacked(_stream(sys.stdin.buffer), "standard input")
    path, status = Path(name), status_of(name)
    is_regular = status is not None and stat.S_ISREG(status.st_mode)
    if is_regular or path.suffix.lower() in COMPRESSED:
        blocks = read_blocks(path)
        first = next(blocks, b"")  # so that an unreadable file is an error before any work
        return itertools.chain([first], blocks)
    try:
        return _unpacked(_stream(stack.enter_context(path.open("rb"))), name)
    except OSError as error:
        raise UserError(f"{option}: {name!r} cannot be read: {explain(error)}") from error


def _unpacked(blocks: Iterator[bytes | None], name: str) -> Iterator[bytes | None]:
    """The bytes of a stream, decompressed if it is compressed."""
    head = next(blocks, None)
    if head is None:
        return
    inside = unpacked(Path(name), head, filter(None, blocks))
    if inside is not None:
        yield from inside
        return
    yield head
    yield from blocks


def _stream(file: IO[bytes]) -> Iterator[bytes | None]:
    """A stream's bytes as they arrive, and None when it pauses: answers that are held back must be given then."""
    try:
        descriptor = file.fileno()
    except (OSError, ValueError):  # not a file of the operating system
        while block := file.read(READ_BYTES):
            yield block
        return
    is_idle, waited = True, 0.0
    while True:
        if not is_idle:
            begin = time.monotonic()
            has_more = bool(select.select([descriptor], [], [], IDLE_SECONDS)[0])
            waited += time.monotonic() - begin
            if not has_more or waited >= PATIENCE_SECONDS:
                is_idle, waited = True, 0.0
                yield None
        if not (block := os.read(descriptor, READ_BYTES)):
            return
        is_idle = False
        yield block
