"""Typing errors in the source."""

from typing_extensions import override

from configs.components import Draws, TextModifier, component
from configs.components.data import Chance
from data_pipeline.stream.modifiers.code import looks_odd, words

_ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")


def _neighbours() -> dict[str, str]:
    """Letters beside each on a QWERTY keyboard: in its row, and below and above it."""
    neighbours: dict[str, str] = {}
    for number, row in enumerate(_ROWS):
        for place, letter in enumerate(row):
            beside = row[max(place - 1, 0) : place] + row[place + 1 : place + 2]
            above = _ROWS[number - 1][place : place + 2] if number else ""
            below = _ROWS[number + 1][max(place - 1, 0) : place + 1] if number + 1 < len(_ROWS) else ""
            neighbours[letter] = beside + above + below
    return neighbours


NEIGHBOURS = _neighbours()


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
    return sum(map(str.isalpha, word)) > 1 and looks_odd(word)


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
