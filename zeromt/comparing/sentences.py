"""The sentences whose translations differ most."""

from collections.abc import Sequence
from dataclasses import dataclass

from configs.process.document import Piece
from trainer.records.marked_text import marked
from zeromt.comparing.sets import SharedSet

METRIC = "chrF"
"""The metric of single sentences, for which BLEU is not suitable."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Translated:
    """A translation of a sentence."""

    pieces: Sequence[Piece]
    score: float


@dataclass(kw_only=True, slots=True, frozen=True)
class Sentence:
    """A sentence and every run's translation of it."""

    set: str
    number: int
    """Line number, from 1."""
    source: str
    references: Sequence[str]
    runs: Sequence[Translated]


def differing(shared: SharedSet, hypotheses: Sequence[Sequence[str]], most: int) -> list[Sentence]:
    """The sentences whose scores differ most, largest difference first.

    Args:
        shared: the set.
        hypotheses: of every run.
        most: how many sentences.
    """
    from sacrebleu.metrics.chrf import CHRF

    scoring = CHRF()
    lines = list(zip(*hypotheses, strict=True))
    references = list(zip(*shared.references, strict=True))
    scores = {
        i: [scoring.sentence_score(text, references[i]).score for text in texts]
        for i, texts in enumerate(lines)
        if len(set(texts)) > 1
    }
    spread = {i: max(values) - min(values) for i, values in scores.items()}
    return [
        Sentence(
            set=shared.name,
            number=i + 1,
            source=shared.sources[i],
            references=references[i],
            runs=[
                Translated(pieces=pieces, score=score)
                for pieces, score in zip(marked(lines[i]), scores[i], strict=True)
            ],
        )
        for i in sorted(spread, key=lambda i: (-spread[i], i))[:most]
    ]
