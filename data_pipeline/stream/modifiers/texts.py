"""Capitals, typing errors, noise that is to be copied, a text before the source, and two pairs as one."""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated

from pydantic import Field
from typing_extensions import override

from configs.components import Draws, MergingModifier, TextModifier, component
from configs.components.data import Chance

MARKUP = re.compile(
    r"""</?[A-Za-z][^<>]*> | <[^<>\s]*>                                             # <b>, <a href="x">, <name1>
      | &\#?\w+;                                                                    # &amp;
      | \$?\{++[^{}]*\}+                                                            # {username}, ${x}, {{ user name }}
      | %(?:\([^()]*\)|\d+\$)?[-+\#0]*\d*(?:\.\d+)?(?:hh?|ll?)?[A-Za-z](?![^\W_])   # %s, %(count)s, %1$d
    """,
    re.VERBOSE,
)
"""Tags, entities and placeholders, without what is between two tags."""
ADDRESS = re.compile(
    r"""(?<!\w)[A-Za-z][\w+.-]*+://\S*[\w/=&\#-]                                    # https://example.org/page
      | (?<!\w)www\.\S*[\w/=&\#-]
      | (?<![\w.+-])[\w.+-]++@[\w-]+(?:\.[\w-]+)+                                   # info@example.org
    """,
    re.VERBOSE,
)
"""URLs and e-mail addresses, without the punctuation behind them."""
_CODE = re.compile(f"{MARKUP.pattern}|{ADDRESS.pattern}", re.VERBOSE)
_SIGN = re.compile(r"[\d<>{}%@\\/_=#$&*|~^+]|[.:](?=[^\W\d_])")
"""What words of a language have not: brackets of tags, a digit, a dot before a letter."""
_NOISE = "".join(
    [
        *(chr(n) for n in range(0x21, 0x7F)),
        *(chr(n) for n in range(0x3B1, 0x3CA)),
        *(chr(n) for n in range(0x430, 0x450)),
    ]
)
Length = Annotated[int, Field(gt=0, le=256)]
"""Words or letters of random text: a longer line would fit no micro-batch, and each letter is drawn by itself."""


def code_spans(text: str) -> Iterator[tuple[int, int]]:
    """Where markup, placeholders and addresses are, in order."""
    return (match.span() for match in _CODE.finditer(text))


def words(text: str) -> list[tuple[str, bool]]:
    """The words between spaces, each with whether it contains markup, a placeholder or an address."""
    spans, flagged, start = list(code_spans(text)), [], 0
    for word in text.split(" "):
        end = start + len(word)
        flagged.append((word, any(start < behind and before < end for before, behind in spans)))
        start = end + 1
    return flagged


def around_code(text: str, change: Callable[[str], str]) -> str:
    """The text with what is between markup, placeholders and addresses changed."""
    parts, done = [], 0
    for start, end in code_spans(text):
        parts += [change(text[done:start]), text[start:end]]
        done = end
    return "".join([*parts, change(text[done:])])


@component("modifier", "upper_case")
class UpperCase(TextModifier):
    """Both sides in capitals, except markup, placeholders and addresses."""

    @override
    def change(self, source: str, target: str, draws: Draws) -> tuple[str, str]:
        return around_code(source, str.upper), around_code(target, str.upper)


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


NEIGHBOURS = {
    letter: row[max(place - 1, 0) : place] + row[place + 1 : place + 2]
    for row in ("qwertyuiop", "asdfghjkl", "zxcvbnm")
    for place, letter in enumerate(row)
}
"""Letters beside each in its row of a keyboard."""


@component("modifier", "typos")
class Typos(TextModifier):
    """Typing errors in some of the source's words: a letter swapped with the next one, doubled, dropped, or replaced by
    its neighbour on a keyboard. The target stays, and so does what the source shares with it: markup, placeholders,
    addresses and codes. Of the other words at least one is hit."""

    words: Chance = 0.1
    """Of a changed pair's words, how many have an error."""

    @override
    def change(self, source: str, target: str, draws: Draws) -> tuple[str, str]:
        flagged = words(source)
        free = [number for number, (word, is_code) in enumerate(flagged) if not is_code and not _is_odd(word)]
        if not free:
            return source, target
        hit = {number for number in free if draws.chance(self.words)} or {draws.choice(free)}
        return " ".join(mistyped(word, draws) if n in hit else word for n, (word, _) in enumerate(flagged)), target


def _is_odd(word: str) -> bool:
    """Whether a word must stay. One that has no error for want of letters counts among the others."""
    return sum(map(str.isalpha, word)) > 1 and _SIGN.search(word) is not None


def mistyped(word: str, draws: Draws) -> str:
    """The word with one error; one letter alone, and what has none, stays as it is."""
    if sum(map(str.isalpha, word)) < 2:
        return word
    place = draws.choice([place for place, letter in enumerate(word) if letter.isalpha()])
    letter, how = word[place], draws.below(4)
    near = NEIGHBOURS.get(letter.lower(), "")
    if how == 0 and place + 1 < len(word):
        return word[:place] + word[place + 1] + letter + word[place + 2 :]
    if how == 1:
        return word[:place] + letter + word[place:]
    if how == 2 or not near:
        return word[:place] + word[place + 1 :]
    other = draws.choice(near)
    return word[:place] + (other.upper() if letter.isupper() else other) + word[place + 1 :]
