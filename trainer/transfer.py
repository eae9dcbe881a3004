"""Beginning a run from another's weights (`--from`): finding, verifying and fitting them to the new vocabulary."""

import dataclasses
import logging
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from configs import RunConfig, UserError
from data_pipeline.tokenizer import Side, Tokenizer
from data_pipeline.vocabularies import Match, match
from trainer.checkpoint.format import Checkpoint, CheckpointError, read_checkpoint
from trainer.checkpoint.newest import problems_of
from trainer.checkpoint.resume import architecture_differences, check_plugins
from trainer.checkpoint.weights_only import NEEDED
from trainer.engines.protocol import Engine
from trainer.ranks.distributed import World
from trainer.runs.layout import step_of
from trainer.runs.parents import OPTION, Named, Parent, check_same, hash_of, note_parent, noted_parent, parent_in

log = logging.getLogger(__name__)

TRIES = 5
"""How often a checkpoint is chosen again because a parent that is still training has deleted the chosen one."""


class Ancestry:
    """A run's parent and, for a run that begins now, the weights to begin with."""

    def __init__(self, run: Path, *, parent: Parent | None, source: Checkpoint | None) -> None:
        """Use `ancestry_of`.

        Args:
            run: the run's folder.
            parent: as its checkpoints record it; None if it has no parent.
            source: the parent's verified checkpoint, if this start takes its weights; None if the run resumes from its
                own.
        """
        self._run = run
        self.parent = parent
        self.source = source
        self._weights: Mapping[str, Tensor] = {}

    @property
    def begins(self) -> bool:
        """Whether this start takes the parent's weights."""
        return self.source is not None

    def fill(self, model: nn.Module, tokenizer: Tokenizer) -> None:
        """Fill the run's new model with the parent's weights, fitted to its vocabulary, if it begins from them.

        Args:
            model: new.
            tokenizer: of its vocabularies.

        Raises:
            UserError: the names or shapes are not the model's.
        """
        if self.source is None or self.parent is None:
            return
        kind = ", their moving average" if self.parent.weights == "ema" else ""
        log.info("begins with the weights of %s%s", self.parent.describe(), kind)
        self._weights = self.source.stored(self.parent.weights)
        if tokenizer.fingerprint != self.source.manifest["fingerprints"]["tokenizer"]:
            weights = InVocabulary(self._weights, Tokenizer.load(self.source.folder), tokenizer, model)
            self.parent = dataclasses.replace(self.parent, rows=weights.rows)
            self._weights = weights
        fill(model, self._weights, self.source)

    def begin(self, engine: Engine, world: World) -> None:
        """Give the new engine the exact fp32 weights, whatever the precision of its model, and no other state.

        The parent is noted, so that a run killed before its first checkpoint begins from it again.

        Args:
            engine: that has made no step.
            world: the ranks.

        Raises:
            OSError: the note cannot be written.
        """
        if not self._weights:
            return
        weights, moments = self._weights, engine.moments
        engine.load_moments(
            lambda name: {key: torch.zeros(shape) for key, shape in moments[name].items()},
            weights.__getitem__,
            weights.__getitem__,
            num_steps=0,
        )
        self._weights = {}
        if world.is_main and self.parent is not None:
            note_parent(self._run, self.parent)


def ancestry_of(config: RunConfig, text: str | None, checkpoint: Checkpoint | None, world: World) -> Ancestry:
    """The parent of a run; called by all ranks.

    A run with a checkpoint resumes from that, since a restarted job gives `--from` again. A run without one that was
    started with a parent before begins from it again, whether `--from` is given or not.

    Args:
        config: of the run.
        text: RUN[@step]; None if `--from` is not given.
        checkpoint: the run's own newest.
        world: the ranks.

    Raises:
        UserError: there is no such checkpoint, the run has another parent, or the model differs.
    """
    run = Path(config.folder)
    named: Named | None = None if text is None else world.on_main(partial(Named.parse, text), Named)
    if checkpoint is not None:
        parent = parent_in(checkpoint.manifest)
        if named is not None:
            world.on_main(partial(check_same, parent, named, run))
        return Ancestry(run, parent=parent, source=None)
    noted = world.on_main(partial(noted_parent, run), Parent)
    if noted is not None:
        if named is not None:
            world.on_main(partial(check_same, noted, named, run))
        where = Path(noted.run) if named is None else named.run  # if it is named again, it may have moved
        named = Named(text=noted.describe(), run=where, step=noted.step)
    if named is None:
        return Ancestry(run, parent=None, source=None)
    source = find_whole(named, world)
    sha256 = hash_of(source.folder)
    if sha256 is None or (noted is not None and noted.sha256 != sha256):
        raise UserError(f"{OPTION}: {source.folder} is not what {run} began from any more; begin anew by --fresh")
    check_plugins(source, reset=NEEDED)
    if differences := architecture_differences(source, config, name="the parent"):
        raise UserError(f"{'; '.join(differences)}; allowed is what {source.folder} was trained with")
    parent = Parent(
        run=str(source.folder.parent.parent.absolute()),
        step=step_of(source.folder) or 0,
        sha256=sha256,
        weights=source.weights_kind(raw=False),
    )
    return Ancestry(run, parent=parent, source=source)


def find_whole(named: Named, world: World) -> Checkpoint:
    """The newest whole checkpoint that `--from` may stand for, verified by the ranks together.

    The parent's folder is not changed: it may be somebody else's, and it may be training.

    Raises:
        UserError: there is none.
    """
    refused: list[str] = []
    for _ in range(TRIES):
        refused, is_stale = [], False
        for folder in world.on_main(named.candidates):
            checkpoint, problems = _open_verified(folder, world)
            if checkpoint is not None:
                return checkpoint
            log.warning("%s: checkpoint refused: %s", OPTION, problems[0])
            refused.append(problems[0])
            is_stale = is_stale or bool(world.from_main(not folder.is_dir()))
        if not is_stale:
            break
    raise UserError(f"{OPTION}: {named.text} has no whole checkpoint: {refused[0]}")


def _open_verified(folder: Path, world: World) -> tuple[Checkpoint | None, list[str]]:
    """Open a checkpoint on every rank, or on none, with the reason: its run may delete it at any moment."""
    if problems := problems_of(folder, world):
        return None, problems
    checkpoint, problem = None, None
    try:
        checkpoint = read_checkpoint(folder)
    except CheckpointError as error:
        problem = str(error)
    problems = [one for one in world.gather(problem) if one is not None]
    return (None if problems else checkpoint), problems


def fill(model: nn.Module, weights: Mapping[str, Tensor], source: Checkpoint) -> None:
    """Fill a new model.

    Args:
        model: to fill.
        weights: whole tensors in fp32, by parameter name.
        source: where they are from, for errors.

    Raises:
        UserError: the names or shapes are not the model's.
    """
    parameters = dict(model.named_parameters())
    if unlike := sorted(parameters.keys() ^ set(weights)):
        what = "is missing" if unlike[0] in parameters else "is not of this model"
        raise UserError(f"{source.folder}: {unlike[0]} {what}")
    with torch.no_grad():
        for name, parameter in parameters.items():
            weight = weights[name]
            if weight.shape != parameter.shape:
                raise UserError(
                    f"{source.folder}: {name} is {tuple(weight.shape)}, this model's is {tuple(parameter.shape)}"
                )
            parameter.copy_(weight)


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
