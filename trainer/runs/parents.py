"""Parents: `--from RUN[@step]` begins a run from another's checkpoint, and `--cooldown N` continues from it.

`--from` takes the weights; `--from RUN@step:all`, for which `--cooldown` stands, takes moments and place in the data
too. A run's checkpoints name its parent in their manifests; before the first, the same command begins again. Imports no
torch.
"""

import contextlib
import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configs import UserError, load_run
from configs.process.files import FileError, expand, is_dir, is_file, naming
from configs.process.files.inside import read_json, read_text
from trainer.runs.layout import (
    CHECKPOINTS,
    CONFIG,
    MANIFEST,
    MANIFEST_HASH,
    STATE,
    checkpoint_folder,
    list_steps,
    looks_complete,
    read_config,
    step_of,
)

OPTION, COOLDOWN = "--from", "--cooldown"
PARENT = "parent"
"""The key in a checkpoint's manifest."""
SETS = ("schedule", "schedule.kind", "optimizer.lr", "training.max_updates")
"""Keys that `--cooldown` sets, and the user may not."""
ALL = "all"
"""What a run takes from its parent's checkpoint when it continues it."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Named:
    """A run, and one of its checkpoints."""

    text: str
    """As the user wrote it."""
    run: Path
    """The run's folder, absolute."""
    step: int | None
    """None: the newest whole one."""
    takes_all: bool = False
    """Not its weights alone."""
    option: str = OPTION

    @classmethod
    def parse(cls, text: str, option: str = OPTION) -> "Named":
        """Read RUN or RUN@step, with `:all` or without; RUN is a run's folder, or one checkpoint in it.

        An existing folder with an `@` or `:all` in its name is taken literally.

        Raises:
            UserError: the text cannot be a path.
        """
        with naming(option):
            given = expand(text)
            takes_all = given.endswith(f":{ALL}") and not is_dir(Path(given))
            given = given.removesuffix(f":{ALL}") if takes_all else given
            name, at, step = given.rpartition("@")
            has_step = bool(name and at) and step.isascii() and step.isdigit() and not is_dir(Path(given))
            folder, number = Path(name if has_step else given).absolute(), int(step) if has_step else None
            if not has_step and is_file(folder / MANIFEST) and folder.parent.name == CHECKPOINTS:
                folder, number = folder.parent.parent, step_of(folder)
        return cls(text=text, run=folder, step=number, takes_all=takes_all, option=option)

    def candidates(self) -> list[Path]:
        """The checkpoints that it may mean, newest first; they are not verified.

        Raises:
            UserError: there is none.
        """
        with naming(self.option):
            if not is_dir(self.run):
                raise UserError(f"{self.option}: no such folder: {str(self.run)!r}; give a run's folder, or RUN@step")
            there = [folder for folder in list_steps(self.run / CHECKPOINTS) if looks_complete(folder)]
            matches = [folder for folder in there if self.step in (None, step_of(folder))]
            if not matches:
                of_step = "yet" if self.step is None else f"of step {self.step}"
                steps = ", ".join(str(step_of(folder)) for folder in reversed(there)) or "none"
                raise UserError(f"{self.option}: {str(self.run)!r} has no checkpoint {of_step}; it has {steps}")
            return matches


def tokenizer_folder(text: str) -> Path:
    """The folder with the tokenizer of RUN[@step], or of a prepared dataset.

    Raises:
        UserError: there is none.
    """
    from data_pipeline.tokenizer import JOINT_FILE, SOURCE_FILE  # imports sentencepiece, which no other command needs

    option, folder = "--tokenizer-of", Path(expand(text))
    with naming(option):
        if any(is_file(folder / name) for name in (JOINT_FILE, SOURCE_FILE)):
            return folder
    return Named.parse(text, option).candidates()[0]


def hash_of(checkpoint: Path) -> str | None:
    """The SHA-256 of a checkpoint's manifest, from the file beside it; None if there is none."""
    try:
        return read_text(checkpoint / MANIFEST_HASH).strip()
    except (OSError, ValueError, FileError):
        return None


@dataclass(kw_only=True, slots=True, frozen=True)
class Parent:
    """The checkpoint that a run began from."""

    run: str
    """Its run's folder at that time, absolute."""
    step: int
    sha256: str
    """SHA-256 of its manifest, which lists the hashes of all other files."""
    weights: str
    """`model`, `ema` if their moving average was taken, or `all`, with moments and place in the data."""
    rows: Mapping[str, Mapping[str, int]] = dataclasses.field(default_factory=dict)
    """For a new vocabulary, by side: how many rows were copied, averaged from the parent's, or new; else empty."""

    @property
    def named(self) -> str:
        """As `--from` names it."""
        return f"{self.run}@{self.step}" + (f":{ALL}" if self.weights == ALL else "")

    def describe(self) -> str:
        """For people."""
        all_of = "all of " if self.weights == ALL else ""
        return f"{all_of}{Path(self.run).name}, step {self.step}, {self.sha256[:12]} ({self.run})"


def parent_in(manifest: Mapping[str, Any]) -> Parent | None:
    """The parent in a checkpoint's manifest."""
    tree = manifest.get(PARENT)
    return Parent(**tree) if isinstance(tree, dict) else None


def parent_of_run(run: Path) -> Parent | None:
    """The parent of a run, from the manifest of its newest readable checkpoint, whose files are not verified."""
    for folder in list_steps(run / CHECKPOINTS):
        with contextlib.suppress(OSError, ValueError, TypeError):
            return parent_in(dict(read_json(folder / MANIFEST)))
    return None


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
        raise UserError(f"{OPTION}: with --reset, which resumes in place; give one of them")
    if reset and not list_steps(run / CHECKPOINTS):
        raise UserError(
            f"--reset: {run} has no checkpoint to take the weights from; give the name and output of the run "
            "that has (name=..., output=...), or leave --reset out for a run from the beginning"
        )
    if text is None:
        return
    named = Named.parse(text)
    if _is_same_place(named.run, run):
        raise UserError(f"{OPTION}: {text} is the run itself; give the new one another name (name=...)")
    if fresh or not list_steps(run / CHECKPOINTS):
        named.candidates()
    else:
        check_same(parent_of_run(run), named, run)


def check_same(parent: Parent | None, named: Named, run: Path) -> None:
    """Refuse a parent other than the one that a run began from, which may have moved, trained on, or be gone.

    Args:
        parent: of the run, which has begun; None if it has no parent.
        named: what `--from` says.
        run: its folder.

    Raises:
        UserError: it is another.
    """
    on = "leave --from out to resume it, or begin anew by --fresh or under another name (name=...)"
    if parent is None:
        raise UserError(f"{OPTION}: {named.text}, and {run} has checkpoints and began from no other run; {on}")
    digest = hash_of(checkpoint_folder(named.run, parent.step))
    is_same = _is_same_place(named.run, Path(parent.run)) if digest is None else digest == parent.sha256
    if not is_same or named.step not in (None, parent.step) or named.takes_all != (parent.weights == ALL):
        raise UserError(f"{OPTION}: {named.text}, and {run} began from {parent.describe()}; {on}")


def _is_same_place(one: Path, other: Path) -> bool:
    """Whether two paths lead to the same folder, which need not exist."""
    return os.path.realpath(one) == os.path.realpath(other)  # unlike `resolve`, it accepts cyclic links


def with_cooldown(arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a command that trains, with `--cooldown` replaced by its settings.

    Args:
        arguments: of the command, by name.

    Raises:
        UserError: the options, the runs or the configuration do not allow it.
    """
    num_updates, parent = arguments.pop("cooldown"), arguments["parent"]
    if parent is None or arguments["config"] is None:
        raise UserError(f"{COOLDOWN}: of which run? Give CONFIG, and --from RUN or --from RUN@step too")
    overrides: Sequence[str] = arguments["overrides"]
    for key in (text.partition("=")[0] for text in overrides):
        if key in SETS:
            raise UserError(f"{key}: {COOLDOWN} sets it; leave it out")
    config = load_run(arguments["config"], overrides, plugins=arguments["plugins"])
    for number, phase in enumerate(config.phases):
        if phase.schedule is not None:
            raise UserError(f"phases.{number}.schedule: {COOLDOWN} is for phases without schedules of their own")
    named = dataclasses.replace(Named.parse(parent), takes_all=True)
    step, lr, counted_from = _beginning(Path(config.folder), named, fresh=arguments["fresh"])
    settings = [
        "schedule={}",  # nothing of the configuration's own remains
        f"schedule={{kind: wsd, warmup_updates: 0, decay_updates: {num_updates}}}",
        f"optimizer.lr={lr!r}",
        f"training.max_updates={step - counted_from + num_updates}",
        "training.max_target_tokens=null",
        "training.max_epochs=null",
        "training.max_minutes=null",
        "training.early_stopping=null",
    ]
    return arguments | {"overrides": [*settings, *overrides], "parent": f"{named.run}@{step}:{ALL}"}


def _beginning(run: Path, named: Named, *, fresh: bool) -> tuple[int, float, int]:
    """Where a cooldown began, or else begins: the step, its learning rate, and where the run's limits count from."""
    own = [] if fresh else [folder for folder in list_steps(run / CHECKPOINTS) if looks_complete(folder)]
    parent = parent_of_run(run) if own else None
    if own:
        check_same(parent, named, run)
    checkpoint = own[0] if own else named.candidates()[0]
    try:
        trainer, saved = read_json(checkpoint / STATE)["trainer"], read_config(checkpoint / CONFIG)
        step = int(trainer["step"]) if parent is None else parent.step
        lr = float(trainer["lr"] if parent is None else saved["optimizer"]["lr"])
        counted_from = int(trainer["start_step"])
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise UserError(f"{COOLDOWN}: {checkpoint} cannot be read: {error}; give another with --from") from error
    if not lr > 0:
        raise UserError(
            f"{COOLDOWN}: {checkpoint} has no learning rate to continue from, as it has weights alone or is at the end "
            "of a schedule; give a checkpoint from before that"
        )
    return step, lr, counted_from
