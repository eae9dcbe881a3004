"""Modifiers of where lines end."""

import unicodedata

from typing_extensions import override

from configs.components import Draws, MergingModifier, TextModifier, component
from data_pipeline.stream.modifiers.code import code_spans


@component("modifier", "end_punctuation")
class EndPunctuation(TextModifier):
    """Punctuation at the end of both sides dropped; pairs of which one side has none stay."""

    @override
    def change(self, source: str, target: str, draws: Draws) -> tuple[str, str]:
        bare = _bare(source), _bare(target)
        return (source, target) if source == bare[0] or target == bare[1] else bare


@component("modifier", "merge")
class Merge(MergingModifier):
    """The pair and its neighbour as one, with a space between them, as where a segmenter missed the end of a sentence.

    Put before the others it is the whole that they change.
    """

    @override
    def merge(self, pair: tuple[str, str], neighbour: tuple[str, str], draws: Draws) -> tuple[str, str]:
        return f"{pair[0]} {neighbour[0]}", f"{pair[1]} {neighbour[1]}"


_NOT_FINAL = frozenset("\"'%‰‱٪؉؊#&*/@\\§¶†‡′″‴׳״")
"""What Unicode calls punctuation too: marks that have a partner, or belong to the word or the number before them; also
in full width."""


def _bare(text: str) -> str:
    """Without sentence-final punctuation, and without the inverted mark that was its partner; brackets, quotation marks
    and code stay."""
    least = max((end for _, end in code_spans(text)), default=0)
    end = len(text)
    while end > least and _is_final(text[end - 1]):
        end -= 1
    bare = text[:end].rstrip()
    if not _closes(text[end:]):
        return bare
    for opening in "¿¡":
        while (place := bare.rfind(opening)) >= 0 and not _closes(bare[place:]):
            bare = bare[:place] + bare[place + 1 :]
    return bare.lstrip()


def _is_final(character: str) -> bool:
    is_other = {character, unicodedata.normalize("NFKC", character)} & _NOT_FINAL
    return not is_other and unicodedata.category(character) == "Po"


def _closes(text: str) -> bool:
    return any(mark in text for mark in "?!")
