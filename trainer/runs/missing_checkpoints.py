"""Checks that a run's checkpoints are where they should be. Does not import torch.

A run that has never saved begins at step 0, for instance after a crash before its first checkpoint. A run that has
saved, but whose checkpoints are gone (a scratch disk that was purged or is not mounted), must not: it would train
everything again and replace its metrics, unasked.
"""

from collections.abc import Iterator
from pathlib import Path

from configs import UserError
from configs.load import is_resolved
from configs.process.files import FileError
from configs.process.files.inside import read_bytes
from trainer.runs.layout import (
    CHECKPOINTS,
    CONFIG,
    LATEST,
    LEDGER_FILE,
    METRICS_FILE,
    STATUS_FILE,
    read_config,
    step_of,
)
from trainer.runs.ledger import read_highest_step
from trainer.runs.metrics_file import read_saves
from trainer.runs.status import read_ended, read_status


def check_reset(folder: Path, reset: str) -> None:
    """Refuse `--reset` if there is no checkpoint to take the weights from; checkpoints are not verified here.

    Args:
        folder: the run's, which need not exist.
        reset: the option's value, such as `data,optimizer`; empty if it is not given.

    Raises:
        UserError: there is none.
    """
    if reset and not _has_any(folder / CHECKPOINTS):
        raise UserError(
            f"--reset: {folder} has no checkpoint to take the weights from; give the name and output of the run "
            "that has (name=..., output=...), or leave --reset out for a run from the beginning"
        )


def find_loss(folder: Path, *, by_config: bool = True) -> str | None:
    """The sign by which the checkpoints of a run are known to be gone; None if they exist, or never did.

    Args:
        folder: the run's.
        by_config: count a resolved configuration alone as a sign: averages and imports leave no other, and a run that
            trains writes its metrics first.
    """
    checkpoints = folder / CHECKPOINTS
    try:
        if _has_any(checkpoints):
            return None
        if checkpoints.is_symlink() and not checkpoints.exists():
            return f"{str(checkpoints)!r} is a link to {str(checkpoints.readlink())!r}, which is not there"
        if checkpoints.exists() and not checkpoints.is_dir():
            return f"{str(checkpoints)!r} is a file, where the folder of checkpoints should be"
        if (latest := checkpoints / LATEST).is_file():
            named = read_bytes(latest)[:200].decode(errors="replace").strip()
            return f"{str(latest)!r} names {named!r}, and no checkpoint is there"
        sign = next(_signs(folder, by_config), None)
    except FileError as error:
        return str(error)
    except OSError as error:
        return f"{error.filename or str(checkpoints)!r} cannot be read: {error.strerror}"
    return None if sign is None else f"{str(checkpoints)!r} holds none, and {sign}: they are gone"


def _has_any(checkpoints: Path) -> bool:
    """Whether there is a checkpoint, whole or not."""
    try:
        return any(step_of(path) is not None for path in checkpoints.iterdir())
    except OSError:
        return False


def _signs(folder: Path, by_config: bool) -> Iterator[str]:
    """A sign that the run once had a checkpoint. A step alone is none: it may precede the first checkpoint."""
    ended = read_ended(folder / STATUS_FILE)
    if ended is not None and ended.state in ("finished", "stopped") and ended.step:
        yield f"{STATUS_FILE} says that the run {ended.state} at step {ended.step}"
    metrics = folder / METRICS_FILE
    if metrics.exists():
        if (saved := _last_saved(metrics)) is not None:
            yield f"{METRICS_FILE} says that one was saved at step {saved}"
        return
    status = read_status(folder / STATUS_FILE)  # it has begun, and its metrics are gone too
    step = max(read_highest_step(folder / LEDGER_FILE), (status and status.step) or 0)
    if step:
        yield f"the run was at step {step}"
    elif by_config and is_resolved(read_config(folder / CONFIG)):
        yield f"{CONFIG} is of a run that was there before"


def _last_saved(metrics: Path) -> int | None:
    """Step of the last successful save."""
    return next((s.step for s in reversed(list(read_saves(metrics))) if s.succeeded and s.step is not None), None)
