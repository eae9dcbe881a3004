"""Words that stand identically on both sides of a pair, once each: the only alignment that needs no aligner."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from data_pipeline.stream.modifiers.code import MARKUP

Span = tuple[int, int]
"""Where something begins in a text, and where it ends."""

_TOKEN = re.compile(r"[^\s<>]+")
_NUMBER = re.compile(r"\d+(?:[^\w\s]\d+)*")


class Anchor(NamedTuple):
    """One such word."""

    source: Span
    target: Span
    is_number: bool
    """Digits, with marks between them (`1,000.5`, `12:30`, `2025-11-25`); else it is a name or a code."""


class _Word(NamedTuple):
    text: str
    span: Span
    is_first: bool
    """Whether it may have its capital for where it stands: at the start, or behind punctuation other than a comma."""


def anchors(source: str, target: str) -> list[Anchor]:
    """Numbers, and words with a capital or a digit, that both sides have once each, in the order of the source.

    Punctuation around a word is not part of it, and markup and placeholders are no words. Digits and letters in
    capitals next to a script without capitals, as in Chinese, are words of their own. What may be the same by chance is
    left out: letters that stand alone, words that begin a sentence on both sides (English and French `On`), and all but
    numbers and codes where neither side has a word in lower case, as in headings.
    """
    ours, theirs = _words(source), _words(target)
    once, other = _once(ours), _once(theirs)
    has_case = any(word.text[0].islower() for word in (*ours, *theirs))
    shared = []
    for text, word in once.items():
        if (twin := other.get(text)) is None:
            continue
        has_digit = any(map(str.isdecimal, text))
        is_name = has_case and len(text) > 1 and any(map(str.isupper, text))
        by_chance = word.is_first and twin.is_first and not any(map(str.isupper, text[1:]))
        if has_digit or (is_name and not by_chance):
            shared.append(Anchor(word.span, twin.span, is_number(text)))
    return shared


def is_number(text: str) -> bool:
    """Whether a word is digits, with marks between them."""
    return _NUMBER.fullmatch(text) is not None


def replaced(text: str, places: Sequence[tuple[Span, str]]) -> str:
    """A text with others in some places, which are in order."""
    parts, done = [], 0
    for (start, end), other in places:
        parts += [text[done:start], other]
        done = end
    return "".join([*parts, text[done:]])


def _once(words: list[_Word]) -> dict[str, _Word]:
    """By their texts, those that occur once."""
    by_text = {word.text: word for word in words}
    for word in words:
        if word.text in by_text and by_text[word.text] is not word:
            del by_text[word.text]
    return by_text


def _words(text: str) -> list[_Word]:
    words, last = [], ""
    for token in _TOKEN.finditer(MARKUP.sub(lambda match: "<" * len(match[0]), text)):  # of the same length
        for begin, stop in _parts(text, *token.span()):
            start, end = begin, stop
            while start < end and _is_mark(text[start]):
                start += 1
            while start < end and _is_mark(text[end - 1]):
                end -= 1
            before = text[start - 1] if start > begin else last
            if start < end:
                words.append(_Word(text[start:end], (start, end), not (before.isalnum() or before == ",")))
            last = text[stop - 1]
    return words


def _parts(text: str, start: int, end: int) -> Iterator[Span]:
    """A token cut where a script without capitals meets digits or a script with them."""
    if not text[start:end].isascii():
        for place in range(start + 1, end):
            one, other = text[place - 1], text[place]
            if one.isalnum() and other.isalnum() and _has_no_case(one) != _has_no_case(other):
                yield start, place
                start = place
    yield start, end


def _has_no_case(character: str) -> bool:
    return character.isalpha() and character.lower() == character.upper()


def _is_mark(character: str) -> bool:
    """Whether it is punctuation or a symbol. Vowel signs, as in Hindi, are neither, nor are they alphanumeric."""
    return not (character.isalnum() or unicodedata.category(character).startswith("M"))
