"""Counts over source lines as they are encoded, and warnings from them."""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from configs import RunConfig
from data_pipeline.tokenizer import UNK_ID, Tokenizer
from trainer.checkpoint.format import TARGET_TAGS, Checkpoint

MUCH_UNKNOWN = 0.01
"""Fraction of unknown pieces above which there is a warning; a few rare characters are normal."""


@dataclass(slots=True)
class SourceCounts:
    """Counts over source lines. Picklable."""

    truncated: int = 0
    """Lines that were longer than the model's positions and were cut."""
    untagged: int = 0
    """Lines with text and no tag of the model."""
    pieces: int = 0
    unknown: int = 0
    """Pieces that are `<unk>`."""
    tags: Counter[str] = field(default_factory=Counter)
    """Number of lines by the tag-like text at their beginning that is not a tag of the model."""

    def note(
        self,
        tokenizer: Tokenizer,
        lines: Sequence[str],
        rows: Sequence[Sequence[int]],
        longest: int,
    ) -> None:
        """Count lines and their pieces; a row of more than `longest` pieces is cut.

        Args:
            tokenizer: of the model.
            lines: of the source.
            rows: their pieces.
            longest: pieces that are left of a row.
        """
        self.truncated += sum(len(row) > longest for row in rows)
        self.untagged += sum(len(row) > 0 and tokenizer.num_text_pieces(row) == len(row) for row in rows)
        self.pieces += sum(map(len, rows))
        self.unknown += sum(row.count(UNK_ID) for row in rows)
        self.tags.update(tokenizer.tags_that_are_text(lines))

    def add(self, more: "SourceCounts") -> None:
        """Add other counts to these."""
        for each in dataclasses.fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(more, each.name))

    def warnings(self, tokenizer: Tokenizer, max_positions: int, *, expects_tag: bool = False) -> list[str]:
        """Warnings for the user, one line each.

        Args:
            tokenizer: of the model.
            max_positions: of the model.
            expects_tag: whether a line without a tag is unlike all that the model was trained on.
        """
        warnings = []
        if expects_tag and (number := self.untagged - self.tags.total()) > 0:  # of those in `tags` another line tells
            known = _known(tokenizer)
            warnings.append(
                f"{number:,} source lines have no tag, and all that the model was trained on have one ({known})"
            )
        if self.truncated:
            warnings.append(
                f"{self.truncated} lines are longer than model.max_positions={max_positions} pieces and lose their end"
            )
        if self.unknown > MUCH_UNKNOWN * self.pieces:
            warnings.append(
                f"{self.unknown:,} of {self.pieces:,} source pieces ({self.unknown / self.pieces:.1%}) are unknown to "
                "the tokenizer (<unk>): the text may be of another language or script than the model's"
            )
        for tag, lines in self.tags.most_common(3):
            why = "has white space before it" if tag in tokenizer.tags else "is not a tag of the model"
            warnings.append(
                f"{lines:,} source lines begin with {tag}, which {why} and is translated as text ({_known(tokenizer)})"
            )
        return warnings


def expects_tag(checkpoint: Checkpoint, config: RunConfig) -> bool:
    """Whether every dataset that a run was trained on has a tag before its source lines."""
    tags = checkpoint.manifest.get(TARGET_TAGS, [config.prepare.target_tag])
    return isinstance(tags, list) and bool(tags) and None not in tags


def _known(tokenizer: Tokenizer) -> str:
    known = ", ".join(tokenizer.tags[:10]) + ", ..." * (len(tokenizer.tags) > 10)
    return f"the model's tags, at the very start of a line: {known or 'none'}"
