"""The filter of training pairs that stand in the validation or test set."""

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal

from configs.components import Corpus, DroppingFilter, Find, component
from data_pipeline.preparation.filters.characters import without_controls


@component("filter", "held_out_overlap")
class HeldOutOverlap(DroppingFilter):
    """Drops pairs that stand in the validation or test set but for case, width and white space."""

    needs_held_out: ClassVar[bool] = True
    mode: Literal["pair", "side"]
    """The same pair, or either of its sides."""

    def report_name(self) -> str:
        """See Filter."""
        return "held-out overlap"

    def open(self, corpus: Corpus, place: str) -> Find:
        """See DroppingFilter."""
        return HeldOut.of(corpus.held_out, self.mode).find


@dataclass(frozen=True, slots=True)
class HeldOut:
    """The pairs of the validation and test sets, as far as training pairs are compared with them."""

    mode: Literal["pair", "side"]
    sources: frozenset[str]
    """Folded, as are the others."""
    targets: frozenset[str]
    pairs: frozenset[tuple[str, str]]

    @classmethod
    def of(cls, pairs: Iterable[tuple[str, str]], mode: Literal["pair", "side"]) -> "HeldOut":
        """Keep what a mode compares: whole pairs, or either side for itself."""
        folded = [(_fold(source), _fold(target)) for source, target in pairs]
        # An empty side of a held-out set is nobody's translation.
        sources, targets = frozenset(s for s, _ in folded if s), frozenset(t for _, t in folded if t)
        return cls(mode, sources, targets, frozenset(folded))

    def find(self, sources: list[str], targets: list[str]) -> list[int]:
        """Rows of the pairs that stand in a held-out set but for case, width and white space."""
        known, others, pairs = self.sources, self.targets, self.pairs
        if self.mode == "pair":
            suspects = [row for row, line in enumerate(sources) if _fold(line) in known]
            return [row for row in suspects if (_fold(sources[row]), _fold(targets[row])) in pairs]
        sides = enumerate(zip(sources, targets, strict=True))
        return [row for row, (s, t) in sides if _fold(s) in known or _fold(t) in others]


def _fold(line: str) -> str:
    """What is compared: a held-out line and its cleaned copy in the corpus are the same."""
    if not line.isprintable():
        line = without_controls([line])[0]
    if line.isascii():
        return " ".join(line.lower().split())
    return " ".join(unicodedata.normalize("NFKC", line).casefold().split())
