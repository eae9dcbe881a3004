"""Modifiers of upper and lower case."""

from configs.components import Draws, TextModifier, component


@component("modifier", "upper_case")
class UpperCase(TextModifier):
    """Both sides in capitals."""

    def change(self, source: str, target: str, draws: Draws) -> tuple[str, str]:
        """See TextModifier."""
        return source.upper(), target.upper()


@component("modifier", "title_case")
class TitleCase(TextModifier):
    """Each word of both sides with a capital first."""

    def change(self, source: str, target: str, draws: Draws) -> tuple[str, str]:
        """See TextModifier."""
        return _titled(source), _titled(target)


def _titled(text: str) -> str:
    """`str.title` would make `Don'T` of `don't`."""
    return " ".join(word[:1].upper() + word[1:] for word in text.split(" "))
