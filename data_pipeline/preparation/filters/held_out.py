"""The filter of training pairs that are in the validation or test set."""

import unicodedata
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
        folded = {(fold(source), fold(target)) for source, target in corpus.held_out}
        # An empty side in a held-out set matches nothing.
        known_sources, known_targets = {s for s, _ in folded if s}, {t for _, t in folded if t}

        def is_there(source: str, target: str) -> bool:
            source = fold(source)
            if self.mode == "pair":
                return source in known_sources and (source, fold(target)) in folded
            return source in known_sources or fold(target) in known_targets

        def find(sources: list[str], targets: list[str]) -> list[int]:
            return [row for row, pair in enumerate(zip(sources, targets, strict=True)) if is_there(*pair)]

        return find


def fold(line: str) -> str:
    """Normalise a line for comparison, so that a held-out line matches its cleaned copy in the corpus."""
    if not line.isprintable():
        line = without_controls([line])[0]
    if line.isascii():
        return " ".join(line.lower().split())
    return " ".join(unicodedata.normalize("NFKC", line).casefold().split())
