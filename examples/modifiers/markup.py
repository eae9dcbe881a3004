"""Two modifiers for models that carry markup through, and copy numbers and names.

    plugins: [examples/modifiers/markup.py]
    stream:
      augment: [{kind: typos}, {kind: inline_tags}, {kind: placeholders, probability: 0.1}]

Both go by words that stand identically on both sides, once each: numbers, and words with a capital or a digit. Nothing
is aligned by a model. In the list they stand behind modifiers of case and typos, and tags before placeholders, which
can then be inside them. `zeromt translate --plugins FILE` puts placeholders in, and takes them out of the translations.
"""

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated

from pydantic import Field
from typing_extensions import override

from configs.components import Draws, TextModifier, component
from configs.fields import Positive
from data_pipeline.stream.modifiers.texts import MARKUP

Span = tuple[int, int]
_WORD = re.compile(r"\w(?:[^\s<>]*\w)?")


def shared_words(source: str, target: str) -> list[tuple[Span, Span]]:
    """Where these words are on both sides, in the order of the source.

    Left out is what may be the same by chance: single letters, words that begin a sentence on both sides (English and
    French `On`), and all words without a digit where no word is in lower case, as in headings.
    """
    ours, theirs = _words(source), _words(target)
    has_case = any(word[0].islower() for word in (*ours, *theirs))
    found = []
    for word, (span, is_first) in ours.items():
        if word in theirs:
            other, other_is_first = theirs[word]
            by_chance = is_first and other_is_first and not any(map(str.isupper, word[1:]))
            is_name = has_case and len(word) > 1 and any(map(str.isupper, word)) and not by_chance
            if is_name or any(map(str.isdecimal, word)):
                found.append((span, other))
    return found


def _words(text: str) -> dict[str, tuple[Span, bool]]:
    """Words that occur once, each with whether its capital may be for where it stands."""
    bare = MARKUP.sub(lambda match: "<" * len(match[0]), text)  # of the same length
    words = [(match[0], match.span(), bare[: match.start()].rstrip(" <")[-1:]) for match in _WORD.finditer(bare)]
    counts = Counter(word for word, _, _ in words)
    return {word: (span, not (last.isalnum() or last == ",")) for word, span, last in words if counts[word] == 1}


def _replaced(text: str, places: Sequence[tuple[Span, str]]) -> str:
    for (start, end), other in sorted(places, reverse=True):
        text = text[:start] + other + text[end:]
    return text


@component("modifier", "inline_tags")
class InlineTags(TextModifier):
    """The same tags around the same words on both sides (`<b>Paris</b>`), or one beside them (`<b/>Paris`)."""

    tags: list[str] = dataclasses.field(default_factory=lambda: ["b", "i", "u", "em", "strong", "span", "a", "g"])
    """Names, without brackets."""
    max_tags: Positive = 3
    """The most tagged places of a pair; at least one."""
    max_words: Positive = 10
    """The most words between a tag's beginning and its end, on either side."""

    @override
    def brings_in(self) -> tuple[Sequence[str], Sequence[str]]:
        texts = [text.format(name) for name in self.tags for text in ("<{}>", "</{}>", "<{}/>")]
        return texts, texts

    @override
    def change(self, source: str, target: str, draws: Draws) -> tuple[str, str]:
        places = [*self._places(source, target)]
        if not places or re.search("[<>]", source + target):
            return source, target
        chosen: list[tuple[Span, Span, str]] = []
        for _ in range(1 + draws.below(self.max_tags)):
            place, tag, kind = draws.choice(places), draws.choice(self.tags), draws.below(8)
            if all(_are_in_order(place, (one, two)) or _are_in_order((one, two), place) for one, two, _ in chosen):
                forms = {0: f"<{tag}/>{{}}", 1: f"{{}}<{tag}/>"}
                chosen.append((*place, forms.get(kind, f"<{tag}>{{}}</{tag}>")))
        return (
            _replaced(source, [(ours, form.format(source[slice(*ours)])) for ours, _, form in chosen]),
            _replaced(target, [(theirs, form.format(target[slice(*theirs)])) for _, theirs, form in chosen]),
        )

    def _places(self, source: str, target: str) -> Iterator[tuple[Span, Span]]:
        """Each shared word, and from one to another where both sides have the same ones between them in one order."""
        words = shared_words(source, target)
        rank = {place: number for number, place in enumerate(sorted(place for _, place in words))}
        for first, (ours, theirs) in enumerate(words):
            for last in range(first, len(words)):
                end, other_end = words[last]
                texts = source[ours[0] : end[1]], target[theirs[0] : other_end[1]]
                if rank[other_end] - rank[theirs] != last - first or max(t.count(" ") for t in texts) >= self.max_words:
                    break
                yield (ours[0], end[1]), (theirs[0], other_end[1])


def _are_in_order(one: tuple[Span, Span], other: tuple[Span, Span]) -> bool:
    """Whether a place is before another on both sides."""
    return one[0][1] <= other[0][0] and one[1][1] <= other[1][0]


@component("modifier", "placeholders")
class Placeholders(TextModifier):
    """Shared words become `<x1>`, `<x2>`, numbered in the order of the source; pairs that have such already stay."""

    most: Annotated[int, Field(ge=1, le=99)] = 8
    """Of a pair; further words stay as they are."""
    copied: str = r"\d+(?:[^\w\s]\d+)*"
    """Regular expression: `zeromt translate` copies what it finds."""

    @override
    def brings_in(self) -> tuple[Sequence[str], Sequence[str]]:
        texts = [f"<x{number}>" for number in range(1, self.most + 1)]
        return texts, texts

    @override
    def change(self, source: str, target: str, draws: Draws) -> tuple[str, str]:
        if re.search(r"<x\d+>", source + target):
            return source, target
        named = [*zip(shared_words(source, target), self.brings_in()[0], strict=False)]
        return (
            _replaced(source, [(ours, name) for (ours, _), name in named]),
            _replaced(target, [(theirs, name) for (_, theirs), name in named]),
        )

    @override
    def to_translate(self, source: str) -> tuple[str, Callable[[str], str]] | None:
        found = [match for match in re.finditer(self.copied, source) if match[0]]
        if not found or re.search(r"<x\d+>", source):
            return None
        named = [*zip(found, self.brings_in()[0], strict=False)]
        values = {name: match[0] for match, name in named}
        changed = _replaced(source, [(match.span(), name) for match, name in named])
        return changed, lambda text: re.sub(r"<x\d+>", lambda match: values.get(match[0], match[0]), text)
