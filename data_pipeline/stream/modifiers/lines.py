"""The modifier of where lines end."""

from typing_extensions import override

from configs.components import Draws, MergingModifier, component


@component("modifier", "merge")
class Merge(MergingModifier):
    """The pair and its neighbour as one, with a space between them, as where a segmenter missed the end of a sentence.

    Put before the others it is the whole that they change.
    """

    @override
    def merge(self, pair: tuple[str, str], neighbour: tuple[str, str], draws: Draws) -> tuple[str, str]:
        return f"{pair[0]} {neighbour[0]}", f"{pair[1]} {neighbour[1]}"
