"""Placeholders of what is to be copied."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import override

from configs.components import Draws, TextModifier, component
from data_pipeline.stream.modifiers.anchors import anchors, replaced

Form = Annotated[str, Field(pattern=r"^[^\s{}]*[^\s{}0-9]\{\}[^\s{}0-9][^\s{}]*$")]


@component("modifier", "placeholders")
class Placeholders(TextModifier):
    """Numbers and names that stand identically on both sides, once each (see `anchors`), become `<num1>`, `<num2>`,
    `<name1>`, numbered in the order of the source. `zeromt translate --placeholders` puts such in and takes them out.

    Pairs without any, and those that have placeholders already, stay.
    """

    needs_letters = True
    of: Literal["numbers", "names", "both"] = "both"
    """What they are put in for."""
    number: Form = "<num{}>"
    """That of a number, with {} for which it is; no white space, and no digit beside {}."""
    name: Form = "<name{}>"
    """That of a name or a code."""
    most: Annotated[int, Field(ge=1, le=99)] = 8
    """Of each in a pair; further ones stay as they are."""

    @override
    def problems(self) -> Iterator[str]:
        if self.number == self.name:
            yield f"name: {self.name} is that of numbers too; give another"

    @override
    def brings_in(self) -> tuple[Sequence[str], Sequence[str]]:
        forms = [*([self.number] if self.of != "names" else []), *([self.name] if self.of != "numbers" else [])]
        texts = [form.format(number) for form in forms for number in range(1, self.most + 1)]
        return texts, texts

    @property
    def placeholder(self) -> re.Pattern[str]:
        """Finds placeholders, of any number."""
        return re.compile("|".join(r"\d+".join(map(re.escape, form.split("{}"))) for form in (self.number, self.name)))

    @override
    def change(self, source: str, target: str, draws: Draws) -> tuple[str, str]:
        pattern = self.placeholder
        if pattern.search(source) or pattern.search(target):
            return source, target
        wanted = [a for a in anchors(source, target) if self.of == "both" or a.is_number == (self.of == "numbers")]
        texts = self.numbered([anchor.is_number for anchor in wanted])
        chosen = [(anchor, text) for anchor, text in zip(wanted, texts, strict=True) if text is not None]
        return (
            replaced(source, [(anchor.source, text) for anchor, text in chosen]),
            replaced(target, sorted((anchor.target, text) for anchor, text in chosen)),
        )

    def numbered(self, are_numbers: Sequence[bool]) -> list[str | None]:
        """One placeholder per number or name; None beyond `most` of a kind."""
        counts = Counter[bool]()
        texts = []
        for is_number in are_numbers:
            counts[is_number] += 1
            form = self.number if is_number else self.name
            texts.append(form.format(counts[is_number]) if counts[is_number] <= self.most else None)
        return texts
