"""Markup within a line."""

import dataclasses
import re
from collections.abc import Iterator, Sequence

from typing_extensions import override

from configs.components import Draws, TextModifier, component
from configs.fields import Positive
from data_pipeline.stream.modifiers.anchors import Anchor, Span, anchors, replaced

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]*")


@component("modifier", "inline_tags")
class InlineTags(TextModifier):
    """The same tags around the same words on both sides (`<b>Paris</b>`), or one beside them (`<b/>Paris`), so that the
    model learns to carry markup through.

    Tagged are words that stand identically on both sides, once each (see `anchors`), and what is between two of them
    where both sides have the same of them in the same order there. Pairs without such words, and those that have `<` or
    `>` already, stay.
    """

    needs_letters = True
    tags: list[str] = dataclasses.field(default_factory=lambda: ["b", "i", "u", "em", "strong", "span", "a", "g"])
    """Names, without brackets."""
    max_tags: Positive = 3
    """The most tagged places of a pair; at least one."""
    max_words: Positive = 10
    """The most words between a tag's beginning and its end, on either side."""

    @override
    def problems(self) -> Iterator[str]:
        if not self.tags:
            yield "tags: is empty; name at least one, as b"
        for name in self.tags:
            if not _NAME.fullmatch(name):
                yield f"tags: {name!r} is no name of a tag; give letters and digits without brackets, as b"

    @override
    def brings_in(self) -> tuple[Sequence[str], Sequence[str]]:
        texts = [text.format(name) for name in self.tags for text in ("<{}>", "</{}>", "<{}/>")]
        return texts, texts

    @override
    def change(self, source: str, target: str, draws: Draws) -> tuple[str, str]:
        if any(bracket in side for bracket in "<>" for side in (source, target)):
            return source, target
        places = _places(anchors(source, target), source, target, self.max_words)
        if not places:
            return source, target
        chosen: list[tuple[Span, Span, tuple[str, str]]] = []
        for _ in range(1 + draws.below(self.max_tags)):
            ours, theirs = draws.choice(places)
            around = _around(draws.choice(self.tags), draws)
            if all(_is_beside(ours, theirs, *other) for *other, _ in chosen):
                chosen.append((ours, theirs, around))
        chosen.sort()
        return (
            _tagged(source, [(ours, around) for ours, _, around in chosen]),
            _tagged(target, [(theirs, around) for _, theirs, around in chosen]),
        )


def _places(shared: Sequence[Anchor], source: str, target: str, max_words: int) -> list[tuple[Span, Span]]:
    """What may be tagged: each anchor, and from one to another where the same ones are between them in order."""
    in_target = sorted(range(len(shared)), key=lambda number: shared[number].target)
    rank = {number: place for place, number in enumerate(in_target)}
    places = []
    for first, one in enumerate(shared):
        last = first
        while last < len(shared) and rank[last] == rank[first] + last - first:
            ours, theirs = (one.source[0], shared[last].source[1]), (one.target[0], shared[last].target[1])
            if max(side.count(" ") for side in (source[slice(*ours)], target[slice(*theirs)])) >= max_words:
                break
            places.append((ours, theirs))
            last += 1
    return places


def _is_beside(ours: Span, theirs: Span, source: Span, target: Span) -> bool:
    """Whether a place is before another on both sides, or behind it on both."""
    is_before = ours[1] <= source[0] and theirs[1] <= target[0]
    return is_before or (source[1] <= ours[0] and target[1] <= theirs[0])


def _around(name: str, draws: Draws) -> tuple[str, str]:
    """What stands before and behind a place; of four, one has a single tag."""
    kind = draws.below(8)
    return (f"<{name}/>", "") if kind == 0 else ("", f"<{name}/>") if kind == 1 else (f"<{name}>", f"</{name}>")


def _tagged(text: str, places: Sequence[tuple[Span, tuple[str, str]]]) -> str:
    return replaced(text, [(span, f"{before}{text[slice(*span)]}{behind}") for span, (before, behind) in places])
