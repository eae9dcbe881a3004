"""Parents (`--from RUN[@step]`): how they are named, and what a run records of its own. Imports no torch."""

import dataclasses
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configs import UserError
from configs.process.files import FileError, expand, is_dir, is_file, naming
from configs.process.files.inside import read_json, read_text, write_text
from trainer.runs.layout import (
    CHECKPOINTS,
    MANIFEST,
    MANIFEST_HASH,
    PARENT_FILE,
    checkpoint_folder,
    list_steps,
    looks_complete,
    step_folder,
    step_of,
)

OPTION = "--from"


@dataclass(kw_only=True, slots=True, frozen=True)
class Named:
    """A run, and one of its checkpoints."""

    text: str
    """As the user wrote it."""
    run: Path
    """The run's folder, absolute."""
    step: int | None
    """None: the newest whole one."""

    @classmethod
    def parse(cls, text: str) -> "Named":
        """Read RUN or RUN@step; RUN is a run's folder, or one checkpoint in it.

        An existing folder with an `@` in its name is taken literally.

        Raises:
            UserError: the text cannot be a path.
        """
        with naming(OPTION):
            name, at, step = expand(text).rpartition("@")
            has_step = bool(name and at) and step.isascii() and step.isdigit() and not is_dir(Path(expand(text)))
            folder = Path(name if has_step else expand(text)).absolute()
            if not has_step and is_file(folder / MANIFEST) and folder.parent.name == CHECKPOINTS:
                return cls(text=text, run=folder.parent.parent, step=step_of(folder))
        return cls(text=text, run=folder, step=int(step) if has_step else None)

    @property
    def checkpoints(self) -> Path:
        """The folder of the run's checkpoints."""
        return self.run / CHECKPOINTS

    def candidates(self) -> list[Path]:
        """The checkpoints that it may stand for, newest first; they are not verified.

        Raises:
            UserError: there is none.
        """
        with naming(OPTION):
            if not is_dir(self.run):
                raise UserError(f"{OPTION}: no such folder: {str(self.run)!r}; give a run's folder, or RUN@step")
            folders = [folder for folder in list_steps(self.checkpoints) if looks_complete(folder)]
            steps = [step for folder in folders if (step := step_of(folder)) is not None]
            if self.step is not None:
                folders = [folder for folder in folders if folder.name == step_folder(self.step)]
            if folders:
                return folders
            if steps:
                there = ", ".join(str(step) for step in reversed(steps))
                raise UserError(f"{OPTION}: {str(self.run)!r} has no checkpoint of step {self.step}; it has {there}")
            raise UserError(f"{OPTION}: {str(self.run)!r} has no checkpoint yet; give a run that has one")


def tokenizer_folder(text: str) -> Path:
    """The folder with the tokenizer of RUN[@step], or of a prepared dataset.

    Raises:
        UserError: there is none.
    """
    from data_pipeline.tokenizer import JOINT_FILE, SOURCE_FILE  # imports sentencepiece, which no other command needs

    folder = Path(expand(text))
    with naming("--tokenizer-of"):
        if any(is_file(folder / name) for name in (JOINT_FILE, SOURCE_FILE)):
            return folder
    try:
        return Named.parse(text).candidates()[0]
    except UserError as error:
        raise UserError(str(error).replace(OPTION, "--tokenizer-of", 1)) from error


def is_same_place(one: Path, other: Path) -> bool:
    """Whether two paths lead to the same folder, which need not exist."""
    return os.path.realpath(one) == os.path.realpath(other)  # unlike `resolve`, it accepts cyclic links


def hash_of(checkpoint: Path) -> str | None:
    """The SHA-256 of a checkpoint's manifest, from the file beside it; None if there is none."""
    try:
        return read_text(checkpoint / MANIFEST_HASH).strip()
    except (OSError, ValueError, FileError):
        return None


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


def check_beginning(run: Path, text: str | None, *, fresh: bool, reset: str | None = None) -> None:
    """Check, before anything is started or renamed, what `--from` and `--reset` ask for.

    `--from` names a checkpoint and the run has no other parent; a run that is reset has a checkpoint with weights.

    Args:
        run: the folder of the run to begin, which need not exist.
        text: RUN[@step]; None if `--from` is not given.
        fresh: whether an existing run is put aside.
        reset: what `--reset` names.

    Raises:
        UserError: one of these does not hold.
    """
    if text is not None and reset:
        raise UserError(f"{OPTION}: with --reset, which goes on in place; give one of them")
    if reset and not list_steps(run / CHECKPOINTS):
        raise UserError(
            f"--reset: {run} has no checkpoint to take the weights from; give the name and output of the run "
            "that has (name=..., output=...), or leave --reset out for a run from the beginning"
        )
    if text is None:
        return
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
                tree = read_json(folder / MANIFEST)
            except (OSError, ValueError):
                continue
            if isinstance(tree, dict):
                return tree
    return None
