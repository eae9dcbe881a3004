"""Lines that are longer than a model holds: split at the ends of sentences, and joined again."""

from collections.abc import Callable, Iterator, Sequence

import regex

_END = regex.compile(r"(?<=[.!?…][\"'”’»)\]]*)\s+|(?<=[。！？｡।؟۔])\s*(?=\S)")
"""Between two sentences: white space behind a full stop, or nothing behind one of a script without spaces."""


def split(line: str, fits: Callable[[Sequence[str]], Sequence[bool]]) -> list[str] | None:
    """The fewest whole sentences at a time that fit; None if one sentence alone does not.

    Args:
        line: of the source.
        fits: whether a model holds each of some texts.
    """
    sentences = [sentence for sentence in _sentences(line) if sentence.strip()]
    if not all(fits(sentences)):
        return None
    parts: list[str] = []
    for sentence in sentences:
        if parts and fits([longer := parts[-1] + sentence])[0]:
            parts[-1] = longer
        else:
            parts.append(sentence)
    return [part.strip() for part in parts]


def join(parts: Sequence[str]) -> str:
    """The translations of the parts as one line: with a space between them, where they end as such scripts do."""
    line = ""
    for part in parts:
        has_space = bool(line) and not regex.search(r"[。！？｡]$", line)
        line += " " + part if has_space and part else part
    return line


def _sentences(line: str) -> Iterator[str]:
    """The sentences, each with the white space behind it."""
    begin = 0
    for end in _END.finditer(line):
        yield line[begin : end.end()]
        begin = end.end()
    yield line[begin:]
