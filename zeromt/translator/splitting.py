"""Lines that are split at the ends of sentences, and joined again: longer ones than a model holds, or paragraphs."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import regex

from trainer.inference.translation.translator import Translation

_END = regex.compile(r"(?<=[.!?…][\"'”’»)\]]*)\s+|(?<=[。！？｡།؟۔])\s*(?=\S)")
"""Between two sentences: white space behind a full stop, or nothing behind one of a script without spaces."""
_WITHOUT_SPACES = ("。", "！", "？", "｡")


def parts_of(line: str, tag: str, fits: Callable[[str], bool], *, paragraphs: bool) -> list[str]:
    """The texts to translate instead of a line; none if one of its sentences alone does not fit.

    Args:
        line: of the source.
        tag: what it begins with, and every part is to begin with.
        fits: whether the model holds a text.
        paragraphs: make each sentence a text; otherwise a text is the fewest whole sentences at a time that fit.
    """
    if not paragraphs and fits(line):
        return [line]
    parts: list[str] = []
    begin, ends = len(tag), [*(end.end() for end in _END.finditer(line, len(tag))), len(line)]
    for end in ends:
        sentence, begin = line[begin:end], end
        if not sentence.strip():
            continue
        if not fits(tag + sentence):
            return []
        if parts and not paragraphs and fits(tag + parts[-1] + sentence):
            parts[-1] += sentence
        else:
            parts.append(sentence)
    return [tag + part.strip() for part in parts] or [line]


def joined(parts: Iterable[Sequence[Translation]]) -> list[Translation]:
    """The translations of a line: the best of each part as one, then the second best, and so on."""
    return [_one(each) for each in zip(*parts, strict=False)]


def _one(parts: Sequence[Translation]) -> Translation:
    return replace(
        parts[0],
        text=join([part.text for part in parts]),
        log_prob=sum(part.log_prob for part in parts),
        score=sum(part.score for part in parts),
        ids=[i for part in parts for i in part.ids],
    )


def join(parts: Sequence[str]) -> str:
    """The translations of the parts as one line: with a space between them, where they end as such scripts do."""
    line = ""
    for part in parts:
        has_space = line and part and not line.endswith(_WITHOUT_SPACES)
        line += f" {part}" if has_space else part
    return line
