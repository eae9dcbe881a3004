"""What is probably not meant in an evaluation that works: exchanged files. Warnings alone."""

from collections import Counter
from collections.abc import Iterator, Sequence

LEAST_LINES = 10
"""Fewer lines say little."""
MOST_LINES = 2000
MARGIN = 1.1
"""How much nearer the translations must be to the sources."""


def of_sides(sources: Sequence[str], references: Sequence[str], hypotheses: Sequence[str]) -> Iterator[str]:
    """Doubts about two files, one line each, by the trigrams of characters that they share with the translations.

    Args:
        sources: lines that were translated.
        references: as many.
        hypotheses: as many.
    """
    if len(sources) < LEAST_LINES:
        return
    equal = sum(source == reference for source, reference in zip(sources, references, strict=True))
    if 2 * equal >= len(sources):
        yield f"--reference: {equal} of {len(sources)} lines are those of --source; is one file given for both?"
        return
    ours, source, reference = (_fractions(lines[:MOST_LINES]) for lines in (hypotheses, sources, references))
    if _common(ours, source) > MARGIN * _common(ours, reference):
        yield "--source is nearer to the translations than --reference; are the two exchanged?"


def _fractions(lines: Sequence[str]) -> dict[str, float]:
    """The fraction that each trigram is."""
    counts = Counter(line[i : i + 3].lower() for line in lines for i in range(len(line) - 2))
    return {trigram: count / counts.total() for trigram, count in counts.items()}


def _common(one: dict[str, float], other: dict[str, float]) -> float:
    return sum(min(fraction, other.get(trigram, 0.0)) for trigram, fraction in one.items())
