"""Modifiers of where lines end."""

import unicodedata

from configs.components import Draws, MergingModifier, TextModifier, component


@component("modifier", "end_punctuation")
class EndPunctuation(TextModifier):
    """Punctuation at the end of both sides dropped; pairs of which one side has none stay."""

    def change(self, source: str, target: str, draws: Draws) -> tuple[str, str]:
        """See TextModifier."""
        bare = _bare(source), _bare(target)
        return (source, target) if source == bare[0] or target == bare[1] else bare


@component("modifier", "merge")
class Merge(MergingModifier):
    """The pair and its neighbour as one, with a space between them, as where a segmenter missed the end of a sentence.

    Put before the others it is the whole that they change.
    """

    def merge(self, pair: tuple[str, str], neighbour: tuple[str, str], draws: Draws) -> tuple[str, str]:
        """See MergingModifier."""
        return f"{pair[0]} {neighbour[0]}", f"{pair[1]} {neighbour[1]}"


_NOT_FINAL = "\"'%‰‱٪#&*/@\\§¶†‡′″‴׳״"
"""What Unicode calls punctuation too: marks that have a partner, or belong to the word or the number before them."""


def _bare(text: str) -> str:
    """Without sentence-final punctuation; brackets and quotation marks, which have a partner, stay."""
    end = len(text)
    while end and unicodedata.category(text[end - 1]) == "Po" and text[end - 1] not in _NOT_FINAL:
        end -= 1
    return text[:end].rstrip()
