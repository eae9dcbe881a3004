"""The input of `zeromt translate`: chunks of lines, alone, with translations to score, or with prefixes."""

import contextlib
import itertools
import os
import select
import stat
import sys
import time
from collections.abc import Iterable, Iterator
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

T = TypeVar("T", str, tuple[str, str])
Idle = None
"""A marker among lines and chunks that the input is idle: answers that are held back must be given now."""


def read_chunks(
    stack: contextlib.ExitStack, input: str | None, target: str | None, prefix: str | None, *, is_scored: bool
) -> Iterator[Chunk | None]:
    """The input in chunks, with `Idle` where it pauses; the files are opened immediately.

    Files may be compressed (.gz, .zst, .xz, .bz2). A byte order mark at their beginning is ignored.
    """
    name = input or "standard input"
    source = _lines(_blocks(stack, input, "--input"), name)
    beside, option = (target, "--target") if target is not None else (prefix, "--prefix")
    if beside is None:
        return _cut(source, name, is_scored=is_scored)
    others = _lines(_blocks(stack, beside, option), beside)
    return _cut_pairs(_paired(source, others, option), is_scored=is_scored)


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


def _cut(lines: Iterator[str | None], name: str, *, is_scored: bool) -> Iterator[Chunk | None]:
    """Chunks of lines; for scoring, each line holds source and translation."""
    if is_scored:
        numbers = itertools.count(1)
        split = (Idle if line is None else _split(line, name, next(numbers)) for line in lines)
        yield from _cut_pairs(split, is_scored=True)
        return
    first = 0
    for chunk in _bunches(lines):
        yield Idle if chunk is None else Chunk(first=first, sources=chunk)
        first += 0 if chunk is None else len(chunk)


def _cut_pairs(pairs: Iterator[tuple[str, str] | None], *, is_scored: bool) -> Iterator[Chunk | None]:
    """Chunks of sources with their parallel lines: translations to score, or prefixes."""
    first = 0
    for chunk in _bunches(pairs):
        if chunk is None:
            yield Idle
            continue
        sources, beside = [s for s, _ in chunk], [b for _, b in chunk]
        yield Chunk(
            first=first,
            sources=sources,
            targets=beside if is_scored else None,
            prefixes=None if is_scored else beside,
        )
        first += len(chunk)


def _bunches(items: Iterable[T | None]) -> Iterator[list[T] | None]:
    """Groups of at most CHUNK_LINES, or CHUNK_CHARACTERS; when the input is idle, the lines so far, then `Idle`."""
    held: list[T] = []
    size = 0
    for item in items:
        if item is not None:
            held.append(item)
            size += len(item) if isinstance(item, str) else sum(map(len, item))
        if held and (item is None or len(held) == CHUNK_LINES or size >= CHUNK_CHARACTERS):
            yield held
            held, size = [], 0
        if item is None:
            yield Idle
    if held:
        yield held


def _split(line: str, name: str, number: int) -> tuple[str, str]:
    source, tab, target = line.partition("\t")
    if not tab or "\t" in target:
        raise UserError(f"{name}: line {number} has {line.count(chr(9))} tabs; a line is source TAB translation")
    return source, target


def _paired(lines: Iterator[str | None], others: Iterator[str | None], option: str) -> Iterator[tuple[str, str] | None]:
    beside = (line for line in others if line is not None)
    number = 0
    for line in lines:
        if line is None:
            yield Idle
            continue
        number += 1
        other = next(beside, None)
        if other is None:
            raise UserError(f"{option}: this file ends before line {number} of the input; it must have a line for each")
        yield line, other
    if next(beside, None) is not None:
        raise UserError(f"{option}: the input ends before line {number + 1} of this file; it must have a line for each")


def _lines(blocks: Iterator[bytes | None], name: str) -> Iterator[str | None]:
    """Lines end only at line feeds, so that input and output have the same number of lines."""
    rest, number = b"", 0
    for block in blocks:
        if block is None:
            yield Idle
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
    """The bytes of a file or of standard input, and `Idle` when a pipe or a terminal pauses."""
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
    """A stream's bytes as they arrive."""
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
                yield Idle
        if not (block := os.read(descriptor, READ_BYTES)):
            return
        is_idle = False
        yield block
