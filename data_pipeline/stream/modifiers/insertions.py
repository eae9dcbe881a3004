"""What is to be copied: noise, emoji and URLs on both sides; and a text before the source."""

import string
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Annotated

from pydantic import Field
from typing_extensions import override

from configs.components import Draws, TextModifier, component

EMOJI = "😀😂😉😍😎😢😡👍👎🙏💪🔥🎉🚀🌍🐶🍕🚗📷🎵"
_NOISE = "".join(
    [
        *(chr(n) for n in range(0x21, 0x7F)),
        *(chr(n) for n in range(0x3B1, 0x3CA)),
        *(chr(n) for n in range(0x430, 0x450)),
    ]
)
Length = Annotated[int, Field(gt=0, le=256)]
"""Words or letters of random text: a longer line would fit no micro-batch, and each letter is drawn by itself."""
_URL = string.ascii_lowercase + string.digits


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


@component("modifier", "emoji")
class Emoji(TextModifier):
    """The same emoji before both sides or behind them."""

    emoji: Annotated[str, Field(min_length=1)] = EMOJI
    """One character each; or with spaces between them, of any number of characters each."""

    @override
    def problems(self) -> Iterator[str]:
        if not self.emoji.split():
            yield "emoji: holds white space alone; name at least one"
        if parts := [text for text in self._choices if _is_part(text)]:
            yield (
                f"emoji: U+{ord(parts[0]):04X} is but a part of an emoji; put spaces between the emoji, so that "
                "each may have several characters"
            )

    @property
    def _choices(self) -> Sequence[str]:
        parts = self.emoji.split()
        return self.emoji if parts == [self.emoji] else parts

    @override
    def brings_in(self) -> tuple[Sequence[str], Sequence[str]]:
        return self._choices, self._choices

    @override
    def change(self, source: str, target: str, draws: Draws) -> tuple[str, str]:
        return _inserted(source, target, draws.choice(self._choices), draws)


@component("modifier", "url")
class Url(TextModifier):
    """The same made-up URL before both sides or behind them."""

    @override
    def brings_in(self) -> tuple[str, str]:
        return _URL + ":/.", _URL + ":/."

    @override
    def change(self, source: str, target: str, draws: Draws) -> tuple[str, str]:
        host, path = ("".join(draws.choice(_URL) for _ in range(least + draws.below(10))) for least in (3, 0))
        end = draws.choice(("com", "org", "net", "de", "fr", "io"))
        return _inserted(source, target, f"https://{host}.{end}/{path}", draws)


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


def _is_part(text: str) -> bool:
    """Whether it is a selector, a joiner, a colour of skin, or one of a flag's two letters."""
    return len(text) == 1 and (
        unicodedata.category(text)[0] == "M"
        or unicodedata.category(text) == "Cf"
        or "\U0001f3fb" <= text <= "\U0001f3ff"
        or "\U0001f1e6" <= text <= "\U0001f1ff"
    )


def _inserted(source: str, target: str, text: str, draws: Draws) -> tuple[str, str]:
    if draws.below(2):
        return f"{text} {source}", f"{text} {target}"
    return f"{source} {text}", f"{target} {text}"
