"""What `zeromt translate` reads: lines of text in chunks, alone, with translations to score, or with prefixes."""

import contextlib
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from configs import UserError
from trainer.translation.job import Chunk

CHUNK_LINES = 2048
"""Lines read, sorted by length and translated at once."""


def read_chunks(
    stack: contextlib.ExitStack, input: str | None, target: str | None, prefix: str | None, *, is_scored: bool
) -> Iterator[Chunk]:
    """The input in chunks; its files are opened at once."""
    name = input or "standard input"
    source = stack.enter_context(_open_input(input, "--input"))
    beside, option = (target, "--target") if target is not None else (prefix, "--prefix")
    if beside is None:
        return _cut(_lines(source, name), name, is_scored=is_scored)
    pairs = _paired(_lines(source, name), _lines(stack.enter_context(_open_input(beside, option)), beside), option)
    return _cut_pairs(pairs, is_scored=is_scored)


def _cut(lines: Iterator[str], name: str, *, is_scored: bool) -> Iterator[Chunk]:
    """Chunks of lines; to be scored, each holds source and translation."""
    if is_scored:
        yield from _cut_pairs((_split(line, name, i) for i, line in enumerate(lines, start=1)), is_scored=True)
        return
    for first in itertools.count(0, CHUNK_LINES):
        if not (chunk := list(itertools.islice(lines, CHUNK_LINES))):
            return
        yield Chunk(first=first, sources=chunk)


def _cut_pairs(pairs: Iterator[tuple[str, str]], *, is_scored: bool) -> Iterator[Chunk]:
    """Chunks of sources with what stands beside them: translations to score, or prefixes."""
    for first in itertools.count(0, CHUNK_LINES):
        if not (chunk := list(itertools.islice(pairs, CHUNK_LINES))):
            return
        sources, beside = [s for s, _ in chunk], [b for _, b in chunk]
        yield Chunk(
            first=first,
            sources=sources,
            targets=beside if is_scored else None,
            prefixes=None if is_scored else beside,
        )


def _split(line: str, name: str, number: int) -> tuple[str, str]:
    source, tab, target = line.partition("\t")
    if not tab or "\t" in target:
        raise UserError(f"{name}: line {number} has {line.count(chr(9))} tabs; allowed is source TAB translation")
    return source, target


def _paired(lines: Iterator[str], others: Iterator[str], option: str) -> Iterator[tuple[str, str]]:
    for number, (line, other) in enumerate(itertools.zip_longest(lines, others), start=1):
        if line is None or other is None:
            few, many = ("the input", "this file") if line is None else ("this file", "the input")
            raise UserError(f"{option}: {few} ends before line {number} of {many}; allowed is a line for each")
        yield line, other


def _lines(source: IO[bytes], name: str) -> Iterator[str]:
    """Lines end at a line feed alone, so that what comes out has as many."""
    for number, raw in enumerate(source, start=1):
        try:
            line = raw.decode("utf-8").rstrip("\n").rstrip("\r")
            yield line.removeprefix("\ufeff") if number == 1 else line  # a byte order mark is no text
        except UnicodeDecodeError as error:
            raise UserError(f"{name}: line {number} is not UTF-8") from error


def _open_input(name: str | None, option: str) -> contextlib.AbstractContextManager[IO[bytes]]:
    if name is None:
        return contextlib.nullcontext(sys.stdin.buffer)
    try:
        return Path(name).open("rb")
    except OSError as error:
        raise UserError(f"{option}: {name!r} cannot be read: {error.strerror}") from error
