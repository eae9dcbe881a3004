"""Capitals, noise that is to be copied, a text before the source, and two pairs as one."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import override

from configs.components import Draws, MergingModifier, TextModifier, component
from data_pipeline.stream.modifiers.code import around_code

_NOISE = "".join(
    [
        *(chr(n) for n in range(0x21, 0x7F)),
        *(chr(n) for n in range(0x3B1, 0x3CA)),
        *(chr(n) for n in range(0x430, 0x450)),
    ]
)
Length = Annotated[int, Field(gt=0, le=256)]
"""Words or letters of random text: a longer line would fit no micro-batch, and each letter is drawn by itself."""


@component("modifier", "upper_case")
class UpperCase(TextModifier):
    """Both sides in capitals, but for markup, placeholders and addresses."""

    dotted_i: Literal["none", "source", "target", "both"] = "none"
    """Sides in Turkish or Azerbaijani: the capital of i is İ there."""

    @override
    def change(self, source: str, target: str, draws: Draws) -> tuple[str, str]:
        return (
            around_code(source, lambda text: _capitals(text, self.dotted_i in ("source", "both"))),
            around_code(target, lambda text: _capitals(text, self.dotted_i in ("target", "both"))),
        )


def _capitals(text: str, is_dotted: bool) -> str:
    return (text.replace("i", "İ") if is_dotted else text).upper()


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


@component("modifier", "merge")
class Merge(MergingModifier):
    """The pair and its neighbour as one, with a space between them, as where a segmenter missed the end of a sentence.

    Put before the others it is the whole that they change.
    """

    @override
    def merge(self, pair: tuple[str, str], neighbour: tuple[str, str], draws: Draws) -> tuple[str, str]:
        return f"{pair[0]} {neighbour[0]}", f"{pair[1]} {neighbour[1]}"
