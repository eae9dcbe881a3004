"""Lines that are split at the ends of sentences, and joined again: longer ones than a model holds, or paragraphs."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

import regex

from configs.components import Candidate, Translated

TOO_LONG = "longer than the model holds, in one sentence"
FAILED = "the model's output is not a number"
NEXT_PART = 1 << 44
"""Between the seeds of the parts of a line that is split; more than lines of any corpus."""
_END = regex.compile(r"(?<=[.!?…][\"'”’»)\]]*)\s+|(?<=[。！？｡।؟۔])\s*(?=\S)")
"""Between two sentences: white space behind a full stop, or nothing behind one of a script without spaces."""


class Tokenizing(Protocol):
    """Of a tokenizer, what is needed here."""

    def cut_tag(self, line: str) -> tuple[int | None, str]:
        """A line's tag, and the text behind it."""
        ...


class LongLines:
    """Texts that a model holds, in place of lines, each of which may have become several.

    Args:
        tokenizer: the model's.
        fits: whether the model holds each of some texts.
        paragraphs: make each sentence a text of its own, whether or not the whole line would fit.
    """

    def __init__(
        self, tokenizer: Tokenizing, fits: Callable[[Sequence[str]], Sequence[bool]], *, paragraphs: bool
    ) -> None:
        self._tokenizer, self._fits, self._paragraphs = tokenizer, fits, paragraphs

    def parts(self, lines: Sequence[str]) -> list[list[str] | None]:
        """Each line, or its sentences; None where the model does not hold one sentence alone."""
        if self._paragraphs:
            by_line = [sentences(self._tokenizer, line) for line in lines]
            return [texts if all(self._fits(texts)) else None for texts in by_line]
        return [[line] if fit else self._split(line) for line, fit in zip(lines, self._fits(lines), strict=True)]

    def _split(self, line: str) -> list[str] | None:
        text = self._tokenizer.cut_tag(line)[1]
        tag = line[: len(line) - len(text)]
        parts = split(text, lambda texts: self._fits([tag + text for text in texts]))
        return None if parts is None else [tag + part for part in parts]


def sentences(tokenizer: Tokenizing, line: str) -> list[str]:
    """The sentences of a line, each with its tag; a line without any is one."""
    text = tokenizer.cut_tag(line)[1]
    tag = line[: len(line) - len(text)]
    return [tag + one for sentence in _sentences(text) if (one := sentence.strip())] or [line]


def joined(numbers: Iterable[int | None], by_part: Iterator[Sequence[Candidate] | None]) -> list[Translated]:
    """What became of each line, from what became of its parts.

    Args:
        numbers: the parts of each line; None where it has none.
        by_part: candidates of each part; None where the model failed.
    """
    found = []
    for number in numbers:
        parts = None if number is None else [next(by_part) for _ in range(number)]
        whole = None if parts is None else [part for part in parts if part is not None]
        if parts is None or whole is None:
            found.append(Translated(hole=TOO_LONG))
        elif len(whole) < len(parts):
            found.append(Translated(hole=FAILED))
        else:
            found.append(Translated(candidates=[_joined(each) for each in zip(*whole, strict=False)]))
    return found


def _joined(parts: Sequence[Candidate]) -> Candidate:
    """The best of each part as one, or the second best, and so on."""
    if len(parts) == 1:
        return parts[0]
    log_probs, scores = [one.log_prob for one in parts], [one.score for one in parts]
    return Candidate(text=join([one.text for one in parts]), log_prob=_sum(log_probs), score=_sum(scores))


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


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
