"""The filter of training pairs that are in the validation or test set."""

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal

from typing_extensions import override

from configs.components import Corpus, DroppingFilter, Find, component
from data_pipeline.preparation.filters.characters import without_controls


@component("filter", "held_out_overlap")
class HeldOutOverlap(DroppingFilter):
    """Drops pairs that are in the validation or test set, ignoring case, width and white space."""

    needs_held_out: ClassVar[bool] = True
    mode: Literal["pair", "side"]
    """What must match: the same pair, or either of its sides."""

    @override
    def report_name(self) -> str:
        return "held-out overlap"

    @override
    def open(self, corpus: Corpus, place: str) -> Find:
        return HeldOut.of(corpus.held_out, self.mode).find


@dataclass(frozen=True, slots=True)
class HeldOut:
    """The texts of the validation and test sets with which training pairs are compared."""

    mode: Literal["pair", "side"]
    sources: frozenset[str]
    """Folded, like the next two."""
    targets: frozenset[str]
    pairs: frozenset[tuple[str, str]]

    @classmethod
    def of(cls, pairs: Iterable[tuple[str, str]], mode: Literal["pair", "side"]) -> "HeldOut":
        """Keep what a mode compares: whole pairs, or each side by itself."""
        folded = [(fold(source), fold(target)) for source, target in pairs]
        # An empty side in a held-out set matches nothing.
        sources, targets = frozenset(s for s, _ in folded if s), frozenset(t for _, t in folded if t)
        return cls(mode, sources, targets, frozenset(folded))

    def find(self, sources: list[str], targets: list[str]) -> list[int]:
        """Rows of the pairs that are in a held-out set, ignoring case, width and white space."""
        known, others, pairs = self.sources, self.targets, self.pairs
        if self.mode == "pair":
            suspects = [row for row, line in enumerate(sources) if fold(line) in known]
            return [row for row in suspects if (fold(sources[row]), fold(targets[row])) in pairs]
        sides = enumerate(zip(sources, targets, strict=True))
        return [row for row, (s, t) in sides if fold(s) in known or fold(t) in others]


def fold(line: str) -> str:
    """Normalise a line for comparison, so that a held-out line matches its cleaned copy in the corpus."""
    if not line.isprintable():
        line = without_controls([line])[0]
    if line.isascii():
        return " ".join(line.lower().split())
    return " ".join(unicodedata.normalize("NFKC", line).casefold().split())
