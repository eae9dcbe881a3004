"""`--cooldown N` with `--from RUN[@step]`: a run that goes on with all that another has, and only lets its rate decay.

The checkpoint becomes the new run's own, moments and place in the data included; so what follows is an ordinary resume
with another schedule. Does not import torch.
"""

import contextlib
import dataclasses
import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configs import RunConfig, UserError, load_run
from configs.process.files import explain, naming
from configs.process.files.inside import name_of, opened, read_json, sync_folder, write_bytes
from trainer.runs.layout import (
    CHECKPOINTS,
    COOLDOWN_FILE,
    LATEST,
    MANIFEST,
    MANIFEST_HASH,
    STATE,
    TEMPORARY,
    list_steps,
    step_folder,
    step_of,
)
from trainer.runs.parents import Named, hash_of, is_same_place

OPTION = "--cooldown"
SETS = ("schedule", "optimizer.lr", "training.max_updates")


@dataclass(kw_only=True, slots=True, frozen=True)
class Beginning:
    """Where a cooldown begins."""

    run: str
    """The folder of the run that it goes on with, absolute."""
    step: int
    sha256: str
    """Of the checkpoint's manifest."""
    lr: float
    """The rate of the last update before it."""
    counted_from: int
    """The step that the run's limits are counted from."""

    def settings(self, num_updates: int) -> list[str]:
        """The settings of a run that decays from here, and ends with that."""
        return [
            f"schedule={{kind: wsd, warmup_updates: 0, decay_updates: {num_updates}}}",
            f"optimizer.lr={self.lr!r}",
            f"training.max_updates={self.step - self.counted_from + num_updates}",
            "training.max_target_tokens=null",
            "training.max_epochs=null",
            "training.max_minutes=null",
            "training.early_stopping=null",
        ]


def with_cooldown(arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a command that trains, with `--cooldown` and its `--from` replaced by what they stand for.

    Unless it is a dry run, the new run's folder gets the checkpoint that it goes on with.

    Args:
        arguments: of the command, by name.

    Raises:
        UserError: the options, the runs or the configuration do not allow it.
    """
    num_updates, parent = arguments.pop("cooldown"), arguments["parent"]
    if parent is None:
        raise UserError(f"{OPTION}: from which run? Give --from RUN or --from RUN@step too")
    for name in ("fresh", "reset"):
        if arguments.get(name):
            raise UserError(
                f"{OPTION}: with --{name}; leave that out, and give the cooldown a name of its own (name=...)"
            )
    overrides: Sequence[str] = arguments["overrides"]
    for key in (text.partition("=")[0] for text in overrides):
        if key in SETS or key == "schedule.kind":
            raise UserError(f"{key}: {OPTION} sets it; leave it out")
    config = load_run(arguments["config"], overrides, plugins=arguments["plugins"])
    _check_phases(config)
    found = _beginning(Path(config.folder), Named.parse(parent), writes=not arguments.get("dry_run"))
    return arguments | {"overrides": [*found.settings(num_updates), *overrides], "parent": None}


def _check_phases(config: RunConfig) -> None:
    for number, phase in enumerate(config.phases):
        if phase.schedule is not None:
            raise UserError(
                f"phases.{number}.schedule: {OPTION} is for runs whose phases have no schedules of their own"
            )


def _beginning(folder: Path, named: Named, *, writes: bool) -> Beginning:
    """The noted beginning of a run that has begun, else that of `--from`; then the run gets its checkpoint."""
    with naming("output"):
        if (noted := _noted(folder)) is not None:
            if not is_same_place(Path(noted.run), named.run) or named.step not in (None, noted.step):
                raise UserError(
                    f"{OPTION}: {folder} goes on with step {noted.step} of {noted.run}; give this one another name "
                    "(name=...)"
                )
            return noted
        if list_steps(folder / CHECKPOINTS):
            raise UserError(
                f"{OPTION}: {folder} has checkpoints already; give the cooldown a name of its own (name=...)"
            )
    checkpoint = named.candidates()[0]
    beginning = _look(checkpoint)
    if writes:
        try:
            _adopt(checkpoint, folder, beginning)
        except OSError as error:
            raise UserError(f"{OPTION}: {folder} cannot get {checkpoint}: {explain(error)}") from error
    return beginning


def _look(checkpoint: Path) -> Beginning:
    """What a checkpoint says of its end.

    Raises:
        UserError: it has no moments, or does not say its rate.
    """
    try:
        state = read_json(checkpoint / STATE)
        trainer = dict(state["trainer"])
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise UserError(f"{OPTION}: {checkpoint / STATE} cannot be read: {error}") from error
    step, lr, sha256 = step_of(checkpoint), trainer.get("lr"), hash_of(checkpoint)
    if step is None or sha256 is None or not any(checkpoint.glob("optimizer-*")):
        raise UserError(f"{OPTION}: {checkpoint} has weights alone; give a checkpoint of training, with its moments")
    if not isinstance(lr, float) or not lr > 0:
        raise UserError(f"{OPTION}: {checkpoint} is at a learning rate of 0; go on with a checkpoint before that")
    run = checkpoint.parent.parent.absolute()
    return Beginning(run=str(run), step=step, sha256=sha256, lr=lr, counted_from=int(trainer.get("start_step", 0)))


def _noted(folder: Path) -> Beginning | None:
    try:
        return Beginning(**read_json(folder / COOLDOWN_FILE))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"{folder / COOLDOWN_FILE}: cannot be read: {error}; give another name (name=...)") from error


def _adopt(checkpoint: Path, folder: Path, beginning: Beginning) -> None:
    """Give a run a checkpoint of another, whole or not at all; several ranks may do so at once.

    Files are linked where the file system allows it: nobody writes in a checkpoint's files. Its own hashes are verified
    when the run resumes from it.
    """
    checkpoints = folder / CHECKPOINTS
    checkpoints.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=TEMPORARY, dir=checkpoints))
    try:
        for name in _files(checkpoint):
            _link(checkpoint / name, temporary / name)
        temporary.chmod(checkpoint.stat().st_mode & 0o777)
        sync_folder(temporary)
        with contextlib.suppress(FileExistsError):
            temporary.rename(checkpoints / step_folder(beginning.step))
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    write_bytes(checkpoints / LATEST, f"{step_folder(beginning.step)}\n".encode(), sync=True)
    write_bytes(folder / COOLDOWN_FILE, f"{json.dumps(dataclasses.asdict(beginning))}\n".encode(), sync=True)


def _files(checkpoint: Path) -> list[str]:
    """The names of a checkpoint's files: those that its manifest lists, and that itself."""
    return [*(Path(name).name for name in read_json(checkpoint / MANIFEST)["files"]), MANIFEST, MANIFEST_HASH]


def _link(source: Path, target: Path) -> None:
    with opened(source) as file:
        try:
            os.link(source, target)
        except OSError:  # another file system, or one without links
            shutil.copyfile(name_of(file), target)
