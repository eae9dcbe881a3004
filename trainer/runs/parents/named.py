"""`--from RUN[@step]`: the checkpoints that it may stand for. Imports no torch."""

import os
from dataclasses import dataclass
from pathlib import Path

from configs import UserError
from configs.process.files import FileError, expand, is_dir, is_file, naming
from configs.process.files.inside import read_text
from trainer.runs.layout import (
    CHECKPOINTS,
    MANIFEST,
    MANIFEST_HASH,
    list_steps,
    looks_complete,
    named_run,
    step_folder,
    step_of,
)
from trainer.runs.missing_checkpoints import find_loss

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
            why = find_loss(self.run, by_config=False) or f"{str(self.run)!r} has no checkpoint yet"
            raise UserError(f"{OPTION}: {why}; give a run that has one")


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
        return read_text(checkpoint / MANIFEST_HASH, within=named_run(checkpoint)).strip()
    except (OSError, ValueError, FileError):
        return None
