"""The input of `zeromt translate`: files and streams as lines, and chunks of lines that are translated together."""

import contextlib
import hashlib
import itertools
import os
import select
import stat
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO

from configs import UserError
from configs.process.files import explain, status_of
from data_pipeline.preparation.lines import MAX_LINE_BYTES, read_blocks, unpacked
from zeromt.translator.worker import Chunk

CHUNK_LINES = 2048
"""Lines that are read, sorted by length and translated together; fewer if no more come for a while."""
CHUNK_CHARACTERS = 16 << 20
"""Fewer, too, where they are long."""
IDLE_SECONDS = 0.2
"""Seconds after which a silent pipe or terminal is idle: the lines so far are translated."""
READ_BYTES = 1 << 20
BYTE_ORDER_MARK = "\ufeff"


def read_chunks(
    stack: contextlib.ExitStack, input: str | None, *, has_targets: bool = False, sentences: Sequence[str] = ()
) -> Iterator[Chunk | None]:
    """The input in chunks, with None where it pauses. Files may be compressed (.gz, .zst).

    Args:
        stack: closes streams.
        input: a file; None for standard input.
        has_targets: behind a tab on each line stands its translation.
        sentences: instead of the input.

    Raises:
        UserError: a file cannot be read, is not UTF-8, or has other lines.
    """
    name = input or "standard input"
    try:
        text = "".join(f"{sentence}\n" for sentence in sentences).encode()
    except UnicodeEncodeError:
        raise UserError("SENTENCE: is not UTF-8; set the terminal to it, or give a file (-i)") from None
    lines = lines_of([text] if sentences else _blocks(stack, input), name)
    return _chunks(lines, name, has_targets=has_targets)


def read_files(files: Iterable[Path]) -> Iterator[str]:
    """The lines of files, one file after the other."""
    for path in files:
        yield from filter(lambda line: line is not None, lines_of(read_blocks(path), str(path)))


def survey(files: Iterable[Path]) -> tuple[int, str]:
    """The number of lines of some files, and the SHA-256 of their text, decompressed, with a line feed behind each."""
    number, sha = 0, hashlib.sha256()
    for line in read_files(files):
        number += 1
        sha.update(line.encode())
        sha.update(b"\n")
    return number, sha.hexdigest()


def lines_of(blocks: Iterable[bytes | None], name: str) -> Iterator[str | None]:
    """Lines of bytes, which end only at line feeds, so that input and output have the same number of lines.

    Args:
        blocks: the bytes, with None where they pause, as the lines then have.
        name: for messages.

    Raises:
        UserError: a line is not UTF-8, or far too long.
    """
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


def _chunks(lines: Iterable[str | None], name: str, *, has_targets: bool) -> Iterator[Chunk | None]:
    """Chunks of at most CHUNK_LINES, or CHUNK_CHARACTERS; where the input pauses, the lines so far, then None."""
    sources: list[str] = []
    targets: list[str] = []
    first = size = 0
    for line in itertools.chain(lines, [None]):
        if line is not None:
            source, *rest = line.split("\t") if has_targets else [line]
            if len(rest) != has_targets:
                number = first + len(sources) + 1
                raise UserError(
                    f"{name}: line {number} has {len(rest)} tabs; with --score a line is source TAB translation"
                )
            sources.append(source)
            targets += rest
            size += len(line)
        if sources and (line is None or len(sources) == CHUNK_LINES or size >= CHUNK_CHARACTERS):
            yield Chunk(first=first, sources=sources, targets=targets if has_targets else None)
            first, size, sources, targets = first + len(sources), 0, [], []
        if line is None:
            yield None


def _blocks(stack: contextlib.ExitStack, name: str | None) -> Iterator[bytes | None]:
    """The bytes of a file or of standard input, decompressed, and None when a pipe or a terminal pauses."""
    if name is None:
        return _unpacked(_stream(sys.stdin.buffer), "standard input")
    status = status_of(name)
    if status is not None and stat.S_ISREG(status.st_mode):
        blocks = read_blocks(Path(name))
        first = next(blocks, b"")  # so that an unreadable file is an error before any work
        return itertools.chain([first], blocks)
    try:
        return _unpacked(_stream(stack.enter_context(Path(name).open("rb"))), name)
    except OSError as error:
        raise UserError(f"--input: {name!r} cannot be read: {explain(error)}") from error


def _unpacked(blocks: Iterator[bytes | None], name: str) -> Iterator[bytes | None]:
    head = next(blocks, None) or b""
    inside = unpacked(Path(name), head, filter(None, blocks))
    yield from itertools.chain([head], blocks) if inside is None else inside


def _stream(file: IO[bytes]) -> Iterator[bytes | None]:
    """A stream's bytes as they arrive, and None when it pauses: answers that are held back must be given then."""
    try:
        descriptor = file.fileno()
    except (OSError, ValueError):  # not a file of the operating system
        while block := file.read(READ_BYTES):
            yield block
        return
    is_idle = True
    while True:
        if not is_idle and not select.select([descriptor], [], [], IDLE_SECONDS)[0]:
            is_idle = True
            yield None
        if not (block := os.read(descriptor, READ_BYTES)):
            return
        is_idle = False
        yield block
