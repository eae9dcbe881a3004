"""Lines that are split at the ends of sentences, and joined again: longer ones than a model holds, or paragraphs."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import regex

if TYPE_CHECKING:
    from data_pipeline.tokenizer import Tokenizer
    from trainer.inference.translation.translator import Translation
    from zeromt.translating.worker import Chunk

TOO_LONG = "longer than the model holds, in one sentence"
FAILED = "the model's output is not a number"
NEXT_PART = 1 << 44
"""Between the seeds of the parts of a line that is split; more than lines of any corpus."""
_END = regex.compile(r"(?<=[.!?…][\"'”’»)\]]*)\s+|(?<=[。！？｡।؟۔])\s*(?=\S)")
"""Between two sentences: white space behind a full stop, or nothing behind one of a script without spaces."""


Fits = Callable[[Sequence[str]], Sequence[bool]]
"""Whether a model holds each of some texts."""


def fitting(tokenizer: "Tokenizer", lines: Sequence[str], fits: Fits, *, paragraphs: bool) -> list[list[str] | str]:
    """The texts that a model holds in place of each line, or why there are none.

    Args:
        tokenizer: the model's.
        lines: of the source.
        fits: whether the model holds each of some texts.
        paragraphs: make each sentence a text of its own, whether or not the whole line would fit.
    """
    if paragraphs:
        by_line = [sentences(tokenizer, line) for line in lines]
        return [texts if all(fits(texts)) else TOO_LONG for texts in by_line]
    return [
        [line] if fit else _split(tokenizer, line, fits) or TOO_LONG
        for line, fit in zip(lines, fits(lines), strict=True)
    ]


def _split(tokenizer: "Tokenizer", line: str, fits: Fits) -> list[str] | None:
    text = tokenizer.cut_tag(line)[1]
    tag = line[: len(line) - len(text)]
    parts = split(text, lambda texts: fits([tag + text for text in texts]))
    return None if parts is None else [tag + part for part in parts]


def sentences(tokenizer: "Tokenizer", line: str) -> list[str]:
    """The sentences of a line, each with its tag; a line without any is one."""
    text = tokenizer.cut_tag(line)[1]
    tag = line[: len(line) - len(text)]
    return [tag + one for sentence in _sentences(text) if (one := sentence.strip())] or [line]


def cut(chunk: "Chunk", parts: Sequence[Sequence[str]]) -> "Chunk":
    """The chunk with the parts of each line as lines; each has a seed of its own."""
    keys = chunk.keys or range(chunk.first, chunk.first + len(parts))
    return replace(
        chunk,
        sources=[text for texts in parts for text in texts],
        keys=[key + i * NEXT_PART for key, texts in zip(keys, parts, strict=True) for i in range(len(texts))],
    )


def joined(parts: Iterable[Sequence["Translation"]]) -> "list[Translation]":
    """The translations of a line: the best of each part as one, then the second best, and so on."""
    return [_one(each) for each in zip(*parts, strict=False)]


def _one(parts: Sequence["Translation"]) -> "Translation":
    return replace(
        parts[0],
        text=join([part.text for part in parts]),
        log_prob=sum(part.log_prob for part in parts),
        score=sum(part.score for part in parts),
        ids=[i for part in parts for i in part.ids],
    )


def split(line: str, fits: Fits) -> list[str] | None:
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
