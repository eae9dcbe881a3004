"""A parent's matrices of one vocabulary as those of another: rows of equal pieces, means, and what a new model has."""

import logging
from collections.abc import Iterator, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from data_pipeline.tokenizer import Side, Tokenizer
from data_pipeline.vocabularies import Match, match

log = logging.getLogger(__name__)

SIDES: dict[str, Side] = {
    "source_embedding.tokens.weight": "source",
    "target_embedding.tokens.weight": "target",
    "output.weight": "target",
    "output.bias": "target",
}
"""The parameters with a row for each piece, by their names, and whose pieces. A matrix that several share stands at its
first use: with three-way ties the vocabulary is joint, and either side's is the other's."""


class InVocabulary(Mapping[str, Tensor]):
    """Stored weights in the vocabulary of a new tokenizer; all but its matrices are read when they are asked for."""

    def __init__(self, stored: Mapping[str, Tensor], old: Tokenizer, new: Tokenizer, model: nn.Module) -> None:
        """Make the matrices, and say how many rows are whose.

        Args:
            stored: whole, in fp32.
            old: the tokenizer that they were trained with.
            new: the model's.
            model: as it was initialised: what the old tokenizer cannot spell keeps its rows of this.
        """
        self._stored = stored
        is_joint = old.is_joint and new.is_joint
        sides: tuple[Side, ...] = ("source",) if is_joint else ("source", "target")
        matches = {side: match(old, new, side) for side in sides}
        parameters = dict(model.named_parameters())
        self._made = {
            name: transferred(stored[name], matches[sides[0] if is_joint else side], parameters[name].detach())
            for name, side in SIDES.items()
            if name in stored and name in parameters
        }
        self.rows = {"both" if is_joint else str(side): of_side.counts() for side, of_side in matches.items()}
        """By side, or for both at once: how many rows are kept, averaged and new."""
        for side, counts in self.rows.items():
            log.info("%s", describe(side, counts))

    def __getitem__(self, name: str) -> Tensor:
        return self._made[name] if name in self._made else self._stored[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._stored)

    def __len__(self) -> int:
        return len(self._stored)


def transferred(old: Tensor, match: Match, new: Tensor) -> Tensor:
    """The rows of a new vocabulary.

    Args:
        old: (V, ...), a row for each old piece.
        match: where the new pieces are in it.
        new: (V', ...), as a new model has it.

    Returns:
        (V', ...), in fp32: of kept pieces the old row to the bit, of those that are cut the mean of theirs.
    """
    rows = new.detach().float().clone()
    rows[list(match.kept)] = old.float()[list(match.kept.values())]
    if match.cut:
        lengths = [len(cut) for cut in match.cut.values()]
        flat = torch.tensor([piece for cut in match.cut.values() for piece in cut])
        offsets = torch.tensor([0, *lengths[:-1]]).cumsum(0)
        table = old.float().reshape(len(old), -1)
        means = F.embedding_bag(flat, table, offsets, mode="mean")
        rows[list(match.cut)] = means.reshape(len(lengths), *old.shape[1:])
    return rows


def describe(side: str, counts: Mapping[str, int]) -> str:
    """A line about the rows of a side."""
    total = sum(counts.values())
    whose = "vocabulary" if side == "both" else f"{side} vocabulary"
    return (
        f"{whose}: of {total:,} pieces {counts['kept']:,} ({counts['kept'] / total:.1%}) keep the parent's rows, "
        f"{counts['averaged']:,} begin as the mean of those that its tokenizer cuts them into, {counts['new']:,} as in "
        "a new model"
    )
