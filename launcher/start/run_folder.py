"""What comes before a start, and after one that was refused: a run's folder, a checked configuration. Without torch."""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from configs import UserError
from configs.plugins import COPIES
from configs.process.files import exists, naming, put_aside
from configs.process.files.inside import is_listed
from configs.process.streams import note
from trainer.runs.layout import FAILURES, LAUNCH_LOCK, LOGS, RUN_LOCK, STATUS_FILE, STOP_FILE
from trainer.runs.parents import check_beginning
from trainer.runs.run_lock import RunLock, is_locked
from trainer.runs.status import read_status


def make_ready(name: str, *, fresh: bool, reset: str | None = None, parent: str | None = None) -> None:
    """Before a job starts, rename an existing run if asked to, and remove an old request to stop.

    Args:
        name: the run's folder, which need not exist.
        fresh: rename an existing run; nothing is ever deleted.
        reset: what to reset, keeping the weights of the newest checkpoint.
        parent: RUN[@step] with whose weights the run begins.

    Raises:
        UserError: a job is writing the run, it cannot be renamed, there is no checkpoint, or the run has another
            parent.
    """
    folder = Path(name)
    with naming("output"):
        check_beginning(folder, parent, fresh=fresh, reset=reset)
        is_there = exists(folder)
    if fresh and (is_there or folder.is_symlink()):
        _replace(folder)
    if is_listed(folder / STOP_FILE) and not is_locked(folder, RUN_LOCK):
        (folder / STOP_FILE).unlink(missing_ok=True)
        note(f"{folder / STOP_FILE}, from before this start, is removed")


def _replace(folder: Path) -> None:
    locks = [RunLock(folder, LAUNCH_LOCK), RunLock(folder, RUN_LOCK)]
    try:
        for lock in locks:
            lock.acquire(patience_seconds=0)
        put_aside(folder, "--fresh")
    except OSError as error:
        raise UserError(
            f"--fresh: {str(folder)!r} cannot be renamed: {error.strerror}; choose a folder that can be written"
        ) from error
    finally:
        for lock in locks:
            lock.release()


def remove_refused(folder: Path) -> None:
    """Remove the folder of a run that was refused before it began, if it has nothing but what such a start leaves.

    To be called only if the start made the folder: one that was there may have files of the user's under these names.
    """
    status = read_status(folder / STATUS_FILE)
    left = {STATUS_FILE, RUN_LOCK, LAUNCH_LOCK, LOGS, FAILURES, COPIES}
    if status is not None and status.state == "refused" and {path.name for path in folder.iterdir()} <= left:
        shutil.rmtree(folder, ignore_errors=True)


def check_in_child(config: str, overrides: Sequence[str], plugins: Sequence[str]) -> int:
    """The exit code of a process that asks what only torch and DeepSpeed know of a configuration; it prints errors."""
    files = [word for file in plugins for word in ("--plugins", file)]
    command = [sys.executable, "-P", "-m", "trainer", config, "--check", *files, *overrides]
    quiet = subprocess.DEVNULL  # DeepSpeed prints to standard output when it is imported
    return subprocess.run(command, stdin=quiet, stdout=quiet, check=False).returncode
