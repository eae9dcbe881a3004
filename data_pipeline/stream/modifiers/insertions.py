"""Noise, which is to be copied, and a text before the source."""

from collections.abc import Iterator, Sequence
from typing import Annotated

from pydantic import Field
from typing_extensions import override

from configs.components import Draws, TextModifier, component

_NOISE = "".join(
    [
        *(chr(n) for n in range(0x21, 0x7F)),
        *(chr(n) for n in range(0x3B1, 0x3CA)),
        *(chr(n) for n in range(0x430, 0x450)),
    ]
)
Length = Annotated[int, Field(gt=0, le=256)]
"""Words or letters of random text: a longer line would fit no micro-batch, and each letter is drawn by itself."""


@component("modifier", "noise")
class Noise(TextModifier):
    """A line of random characters in the place of both sides, which the model learns to copy."""

    alphabet_of: Annotated[str, Field(min_length=2)] = _NOISE
    """Characters that it is made of."""
    max_words: Length = 8
    """The most words of a line of noise; at least one."""
    max_letters: Length = 8
    """Of a word."""

    @override
    def problems(self) -> Iterator[str]:
        if any(character.isspace() for character in self.alphabet_of):
            yield "alphabet_of: holds white space; leave it out: words have a space between them"

    @override
    def brings_in(self) -> tuple[str, str]:
        return self.alphabet_of, self.alphabet_of

    @override
    def change(self, source: str, target: str, draws: Draws) -> tuple[str, str]:
        words = [
            "".join(draws.choice(self.alphabet_of) for _ in range(1 + draws.below(self.max_letters)))
            for _ in range(1 + draws.below(self.max_words))
        ]
        line = " ".join(words)
        return line, line


@component("modifier", "prefix")
class Prefix(TextModifier):
    """A text before the source, such as a tag of where the pair comes from (Caswell et al., 2019): one of the
    tokenizer's tags (`prepare.tokenizer.tags`) becomes its own piece. Behind the dataset's target tag, if it has one.
    """

    text: Annotated[str, Field(min_length=1, pattern=r"^\S+$")]
    """Without white space."""

    @override
    def brings_in(self) -> tuple[Sequence[str], Sequence[str]]:
        return [self.text], ()

    @override
    def change(self, source: str, target: str, draws: Draws) -> tuple[str, str]:
        return f"{self.text} {source}", target
