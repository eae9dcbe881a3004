"""Counts over source lines as they are encoded, and warnings from them."""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from data_pipeline.tokenizer import UNK_ID, Tokenizer

MUCH_UNKNOWN = 0.01
"""Fraction of unknown pieces above which there is a warning; a few rare characters are normal."""


@dataclass(slots=True)
class SourceCounts:
    """Counts over source lines. Picklable."""

    truncated: int = 0
    """Lines that were longer than the model's positions and were cut."""
    pieces: int = 0
    unknown: int = 0
    """Pieces that are `<unk>`."""
    tags: Counter[str] = field(default_factory=Counter)
    """Number of lines by the tag-like text at their beginning that is not a tag of the model."""

    def note(self, tokenizer: Tokenizer, lines: Sequence[str], rows: Sequence[Sequence[int]], longest: int) -> None:
        """Count lines and their pieces; a row of more than `longest` pieces is cut."""
        self.truncated += sum(len(row) > longest for row in rows)
        self.pieces += sum(map(len, rows))
        self.unknown += sum(row.count(UNK_ID) for row in rows)
        self.tags.update(tokenizer.tags_that_are_text(lines))

    def add(self, more: "SourceCounts") -> None:
        """Add other counts to these."""
        for each in dataclasses.fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(more, each.name))

    def warnings(self, tokenizer: Tokenizer, max_positions: int) -> list[str]:
        """Warnings for the user, one line each."""
        found = []
        if self.truncated:
            found.append(
                f"{self.truncated} lines were longer than model.max_positions={max_positions} pieces and lost their end"
            )
        if self.unknown > MUCH_UNKNOWN * self.pieces:
            found.append(
                f"{self.unknown:,} of {self.pieces:,} source pieces ({self.unknown / self.pieces:.1%}) are unknown to "
                "the tokenizer (<unk>): the text may be of another language or script than the model's"
            )
        known = ", ".join(tokenizer.tags[:10]) + ", ..." * (len(tokenizer.tags) > 10)
        for tag, lines in self.tags.most_common(3):
            why = "has white space before it" if tag in tokenizer.tags else "is no tag of the model"
            found.append(
                f"{lines:,} source lines begin with {tag}, which {why} and was translated as text "
                f"(the model's tags, at the very start of a line: {known or 'none'})"
            )
        return found
