"""A run's record of its parent, and the check that `--from` names the same one. Imports no torch."""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configs import UserError
from configs.process.files.inside import read_json, write_text
from trainer.runs.layout import CHECKPOINTS, MANIFEST, PARENT_FILE, checkpoint_folder, list_steps, looks_complete
from trainer.runs.parents.named import OPTION, Named, hash_of, is_same_place

PARENT = "parent"
"""The key in a checkpoint's manifest."""
_ON = "leave --from out to go on with it, or begin anew by --fresh or under another name (name=...)"


@dataclass(kw_only=True, slots=True, frozen=True)
class Parent:
    """The checkpoint whose weights a run began with."""

    run: str
    """Its run's folder at that time, absolute."""
    step: int
    sha256: str
    """SHA-256 of its manifest, which lists the hashes of all other files."""
    weights: str
    """`model`, or `ema` if their moving average was taken."""
    rows: Mapping[str, Mapping[str, int]] = dataclasses.field(default_factory=dict)
    """For a new vocabulary, by side: how many rows were copied, averaged from the parent's, or new; else empty."""

    @property
    def name(self) -> str:
        """The run's."""
        return Path(self.run).name

    @property
    def folder(self) -> Path:
        """The checkpoint's folder at that time."""
        return checkpoint_folder(Path(self.run), self.step)

    def describe(self) -> str:
        """For people."""
        return f"{self.name}, step {self.step}, {self.sha256[:12]} ({self.run})"

    def is_meant_by(self, named: Named) -> bool:
        """Whether `--from` names this parent, which may have moved, trained on, or deleted that checkpoint."""
        if named.step is not None and named.step != self.step:
            return False
        digest = hash_of(checkpoint_folder(named.run, self.step))
        return is_same_place(named.run, Path(self.run)) if digest is None else digest == self.sha256

    def to_json(self) -> dict[str, Any]:
        """Plain JSON without empty fields."""
        return {key: value for key, value in dataclasses.asdict(self).items() if value != {}}

    @classmethod
    def from_json(cls, tree: Mapping[str, Any]) -> "Parent":
        """Read what `to_json` gave."""
        known = {field.name for field in dataclasses.fields(cls)}
        return cls(**{key: value for key, value in tree.items() if key in known})


def parent_in(manifest: Mapping[str, Any]) -> Parent | None:
    """The parent in a checkpoint's manifest."""
    tree = manifest.get(PARENT)
    return Parent.from_json(tree) if isinstance(tree, dict) else None


def noted_parent(run: Path) -> Parent | None:
    """The parent that the first start of an unsaved run has noted; None if it has none.

    Raises:
        UserError: the note cannot be read.
    """
    path = run / PARENT_FILE
    try:
        return Parent.from_json(read_json(path))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise UserError(f"{path}: cannot be read: {error}; begin anew by --fresh") from error


def note_parent(run: Path, parent: Parent) -> None:
    """Note the parent of a run before its first update.

    Raises:
        OSError: it cannot be written.
    """
    write_text(run / PARENT_FILE, json.dumps(parent.to_json(), indent=1) + "\n")


def parent_of_run(run: Path) -> Parent | None:
    """The parent of a run, from its newest checkpoint or, before the first, from its note.

    Raises:
        UserError: the note cannot be read.
    """
    manifest = _newest_manifest(run)
    return noted_parent(run) if manifest is None else parent_in(manifest)


def check_parent(run: Path, text: str | None, *, fresh: bool, reset: str | None = None) -> None:
    """Check, before anything is started or renamed, that `--from` names a checkpoint and the run has no other parent.

    Args:
        run: the folder of the run to begin, which need not exist.
        text: RUN[@step]; None if `--from` is not given.
        fresh: whether an existing run is put aside.
        reset: what `--reset` names.

    Raises:
        UserError: one of these does not hold.
    """
    if text is None:
        return
    if reset:
        raise UserError(f"{OPTION}: with --reset, which goes on in place; give one of them")
    named = Named.parse(text)
    if is_same_place(named.run, run):
        raise UserError(f"{OPTION}: {text} is the run itself; give the new one another name (name=...)")
    if fresh:
        named.candidates()
        return
    manifest = _newest_manifest(run)
    parent = parent_of_run(run)
    if manifest is None and parent is None:
        named.candidates()
    else:
        check_same(parent, named, run)


def check_same(parent: Parent | None, named: Named, run: Path) -> None:
    """Refuse a parent other than the one that a run began from.

    Args:
        parent: of the run, which has begun; None if it has no parent.
        named: what `--from` says.
        run: its folder.

    Raises:
        UserError: it is another.
    """
    if parent is None:
        raise UserError(f"{OPTION}: {named.text}, and {run} has checkpoints and began from no other run; {_ON}")
    if not parent.is_meant_by(named):
        raise UserError(f"{OPTION}: {named.text}, and {run} began from {parent.describe()}; {_ON}")


def _newest_manifest(run: Path) -> Mapping[str, Any] | None:
    """The manifest of the newest readable checkpoint, whose files are not verified; None if there is none."""
    for folder in list_steps(run / CHECKPOINTS):
        if looks_complete(folder):
            try:
                tree = read_json(folder / MANIFEST, within=run)
            except (OSError, ValueError):
                continue
            if isinstance(tree, dict):
                return tree
    return None
