"""Beginning a run from another's checkpoint (`--from`): finding, verifying, and fitting weights to a new vocabulary."""

import dataclasses
import logging
from collections import ChainMap
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

from configs import RunConfig, UserError
from data_pipeline.tokenizer import Match, Side, Tokenizer, match
from trainer.checkpoint.format import Checkpoint
from trainer.checkpoint.model_files import fill
from trainer.checkpoint.newest import verified
from trainer.checkpoint.resume import architecture_differences, check_plugins
from trainer.checkpoint.weights_only import NEEDED
from trainer.engines import Engine
from trainer.ranks.distributed import World
from trainer.runs.layout import step_of
from trainer.runs.parents import ALL, OPTION, Named, Parent, hash_of, parent_in

log = logging.getLogger(__name__)


class Ancestry:
    """A run's parent and, for a run that begins now, its checkpoint."""

    def __init__(self, parent: Parent | None = None, source: Checkpoint | None = None) -> None:
        """Use `ancestry_of`.

        Args:
            parent: as the run's checkpoints record it; None if it has no parent.
            source: the parent's verified checkpoint; None if the run resumes from its own.
        """
        self.parent = parent
        self.source = source
        self._weights: Mapping[str, Tensor] = {}

    @property
    def continued(self) -> Checkpoint | None:
        """The parent's checkpoint, if everything in it is taken, as if it were the run's own."""
        return self.source if self.parent is not None and self.parent.weights == ALL else None

    def fill(self, model: nn.Module, tokenizer: Tokenizer) -> None:
        """Fill the run's new model with the parent's weights, fitted to its vocabulary, if it begins from these alone.

        Args:
            model: new.
            tokenizer: of its vocabularies.

        Raises:
            UserError: the names or shapes are not the model's.
        """
        if self.source is None or self.parent is None or self.continued is not None:
            return
        kind = ", their moving average" if self.parent.weights == "ema" else ""
        log.info("begins with the weights of %s%s", self.parent.describe(), kind)
        self._weights = self.source.stored(self.parent.weights)
        if tokenizer.fingerprint != self.source.manifest["fingerprints"]["tokenizer"]:
            old = Tokenizer.load(self.source.folder)
            self._weights, rows = in_vocabulary(self._weights, old, tokenizer, model)
            self.parent = dataclasses.replace(self.parent, rows=rows)
        fill(model, self._weights, self.source.folder)

    def begin(self, engine: Engine, *, is_main: bool) -> None:
        """Give the new engine the exact fp32 weights, whatever the precision of its model, and no other state.

        Args:
            engine: that has made no step.
            is_main: whether this rank warns of new rows that are not trained.
        """
        frozen = [name for name in SIDES if name in engine.parameter_sizes() and name not in engine.trained]
        counts = () if self.parent is None else self.parent.rows.values()
        if is_main and frozen and any(rows["averaged"] + rows["new"] for rows in counts):
            log.warning(
                f"training.freeze: {', '.join(frozen)} is not trained, so new pieces stay as they begin; leave it out"
            )
        if self._weights:
            weights, moments = self._weights, engine.moments
            engine.load_moments(
                lambda name: {key: torch.zeros(shape) for key, shape in moments[name].items()},
                weights.__getitem__,
                weights.__getitem__,
                num_steps=0,
            )
            self._weights = {}


def ancestry_of(config: RunConfig, text: str | None, checkpoint: Checkpoint | None, world: World) -> Ancestry:
    """The parent of a run; called by all ranks.

    A run with a checkpoint resumes from that, since a restarted job gives `--from` again: see `check_beginning`.

    Args:
        config: of the run.
        text: RUN[@step]; None if `--from` is not given.
        checkpoint: the run's own newest.
        world: the ranks.

    Raises:
        UserError: there is no such checkpoint, or the model differs.
    """
    if text is None or checkpoint is not None:
        return Ancestry(None if checkpoint is None else parent_in(checkpoint.manifest))
    named = world.on_main(partial(Named.parse, text), Named)
    source = find_whole(named, world)
    if not named.takes_all:
        check_plugins(source, reset=NEEDED)
        if differences := architecture_differences(source, config, name="the parent"):
            raise UserError(f"{'; '.join(differences)}; allowed is what {source.folder} was trained with")
    parent = Parent(
        run=str(source.folder.parent.parent.absolute()),
        step=step_of(source.folder) or 0,
        sha256=hash_of(source.folder) or "",
        weights=ALL if named.takes_all else source.weights_kind(raw=False),
    )
    return Ancestry(parent, source)


def find_whole(named: Named, world: World) -> Checkpoint:
    """The newest whole checkpoint that `--from` may mean, verified by the ranks together.

    The parent's folder is not changed: it may be somebody else's, and it may be training.

    Raises:
        UserError: there is none.
    """
    refused: list[str] = []
    for folder in world.on_main(named.candidates, list[Path]):
        checkpoint, problems = verified(folder, world)
        if checkpoint is not None:
            return checkpoint
        log.warning("%s: checkpoint refused: %s", OPTION, problems[0])
        refused += problems
    raise UserError(f"{OPTION}: {named.text} has no whole checkpoint: {refused[0]}")


SIDES: dict[str, Side] = {
    "source_embedding.tokens.weight": "source",
    "target_embedding.tokens.weight": "target",
    "output.weight": "target",
    "output.bias": "target",
}
"""The parameters with a row for each piece, by their names, and whose pieces. A matrix that several share stands at its
first use: with three-way ties the vocabulary is joint, and either side's is the other's."""


def in_vocabulary(
    stored: Mapping[str, Tensor], old: Tokenizer, new: Tokenizer, model: nn.Module
) -> tuple[Mapping[str, Tensor], dict[str, dict[str, int]]]:
    """Stored weights in the vocabulary of a new tokenizer; all but its matrices are read when they are asked for.

    Args:
        stored: whole, in fp32.
        old: the tokenizer that they were trained with.
        new: the model's.
        model: as it was initialised: what the old tokenizer cannot spell keeps its rows of this.

    Returns:
        The weights; and by side, or for both at once, how many rows are kept, averaged and new.
    """
    is_joint = old.is_joint and new.is_joint
    sides: tuple[Side, ...] = ("source",) if is_joint else ("source", "target")
    matches = {side: match(old, new, side) for side in sides}
    made = {
        name: transferred(stored[name], matches[sides[0] if is_joint else SIDES[name]], parameter.detach())
        for name, parameter in model.named_parameters()
        if name in SIDES and name in stored
    }
    rows = {"both" if is_joint else str(side): of_side.counts() for side, of_side in matches.items()}
    for side, counts in rows.items():
        total, kept = sum(counts.values()), counts["kept"]
        log.info(
            f"{'' if side == 'both' else f'{side} '}vocabulary: of {total:,} pieces {kept:,} ({kept / total:.1%}) keep "
            f"the parent's rows, {counts['averaged']:,} begin as the mean of those that its tokenizer cuts them into, "
            f"{counts['new']:,} as in a new model"
        )
    return ChainMap(made, cast("dict[str, Tensor]", stored)), rows


def transferred(old: Tensor, match: Match, new: Tensor) -> Tensor:
    """The rows of a new vocabulary.

    Args:
        old: (V, ...), a row for each old piece.
        match: where the new pieces are in it.
        new: (V', ...), as a new model has it.

    Returns:
        (V', ...), in fp32: kept pieces have the old row to the bit, others the mean of the rows of the old pieces
        that spell them.
    """
    old, rows = old.float(), new.float().clone()
    rows[list(match.kept)] = old[list(match.kept.values())]
    for row, pieces in match.cut.items():
        rows[row] = old[list(pieces)].mean(0)
    return rows
