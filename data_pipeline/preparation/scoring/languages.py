"""The score `language`: how probable it is that both sides of a pair are in their languages."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from configs import PrepareSection
from data_pipeline.preparation.identification import NAMED, OwnLanguages
from data_pipeline.preparation.scoring.numbers import Scores
from data_pipeline.prepared.index import hash_file


@dataclass(frozen=True, slots=True)
class LanguageScore:
    """What scores the pairs of a chunk; the identifier is loaded in the process that scores."""

    source_language: str
    target_language: str
    model: str

    @classmethod
    def of_section(cls, section: PrepareSection) -> "LanguageScore | None":
        """That of a section; None if it asks for none.

        Raises:
            UserError: a package or file is missing, or the model does not know a language.
        """
        if not section.language_score:
            return None
        score = cls(*section.languages, section.cleaning.language_model)
        score.of([], [])  # so that errors are found before any long work
        return score

    def of(self, sources: Sequence[str], targets: Sequence[str]) -> Scores:
        """(pairs,): the lower probability of both sides; NaN where one has no language, as a number."""
        own = OwnLanguages("prepare.language_score", self.source_language, self.target_language, self.model)
        sides = [[own.probability(line, side) for line in lines] for side, lines in enumerate((sources, targets))]
        scores: Scores = np.minimum(*np.array(sides, dtype=np.float32).reshape(2, -1))
        return scores


def made_by_languages(section: PrepareSection) -> dict[str, Any]:
    """What makes the score, as plain JSON."""
    model = Path(section.cleaning.language_model)
    made = {"identifier": model.name, "languages": list(section.languages)}
    return made if str(model) in NAMED or not model.is_file() else {**made, "sha256": hash_file(model)}
