"""Modifiers of upper and lower case."""

from typing import Literal

from typing_extensions import override

from configs.components import Draws, TextModifier, component
from data_pipeline.stream.modifiers.code import around_code, words

Sides = Literal["none", "source", "target", "both"]

_OPENING = "\"'([“”„«»‘’‚‹›¿¡"


@component("modifier", "upper_case")
class UpperCase(TextModifier):
    """Both sides in capitals, but for markup, placeholders and addresses."""

    changes_letters = True
    dotted_i: Sides = "none"
    """Sides in Turkish or Azerbaijani: the capital of i is İ there."""

    @override
    def change(self, source: str, target: str, draws: Draws) -> tuple[str, str]:
        ours, theirs = _are_dotted(self.dotted_i)
        return (
            around_code(source, lambda text: _capitals(text, ours)),
            around_code(target, lambda text: _capitals(text, theirs)),
        )


@component("modifier", "title_case")
class TitleCase(TextModifier):
    """Each word of both sides with a capital first, but for markup, placeholders and addresses."""

    changes_letters = True
    dotted_i: Sides = "none"
    """As for upper_case."""

    @override
    def change(self, source: str, target: str, draws: Draws) -> tuple[str, str]:
        ours, theirs = _are_dotted(self.dotted_i)
        return _titled(source, ours), _titled(target, theirs)


def _are_dotted(sides: Sides) -> tuple[bool, bool]:
    return sides in ("source", "both"), sides in ("target", "both")


def _capitals(text: str, is_dotted: bool) -> str:
    return (text.replace("i", "İ") if is_dotted else text).upper()


def _titled(text: str, is_dotted: bool) -> str:
    """`str.title` would make `Don'T` of `don't`."""
    return " ".join(word if is_code else _capital(word, is_dotted) for word, is_code in words(text))


def _capital(word: str, is_dotted: bool) -> str:
    bare = word.lstrip(_OPENING)
    first = "İ" if is_dotted and bare[:1] == "i" else bare[:1].title()
    return word[: len(word) - len(bare)] + first + bare[1:]
