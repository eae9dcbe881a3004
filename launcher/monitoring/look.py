"""What a run is doing, from the files and locks of its folder, and from SLURM. Does not import torch."""

import contextlib
import socket
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from configs.process.files.inside import is_listed
from launcher.slurm.queue import GONE, JobState, find_job
from launcher.slurm.record import jobs_of
from trainer.runs.failure import Failure, newest_cause
from trainer.runs.layout import (
    LAUNCH_LOCK,
    LEDGER_FILE,
    MANIFEST,
    RUN_LOCK,
    STATUS_FILE,
    STOP_FILE,
    checkpoint_folder,
    complete_steps,
)
from trainer.runs.ledger import read_ledger
from trainer.runs.run_lock import is_locked
from trainer.runs.status import Status, read_status

ACTIVE = ("starting", "running")
DEEP = ("*", "*/*")
"""Where runs are in a folder: below it, or in the folder of a name with a slash."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Overview:
    """A run as `zeromt status` shows it."""

    run: str
    state: str
    """starting, running, finished, stopped, failed, refused; died: its processes ended without a word; empty: it was
    never started."""
    stop_requested: bool
    status: Status
    """As it was written last."""
    checkpoint: int | None
    """The step of the newest complete checkpoint."""
    checkpoint_age: float | None
    """Seconds since it was made; negative if its clock is ahead of this one."""
    job: JobState | None
    """The SLURM job that writes the run, or waits to."""
    last_failure: Failure | None
    """What failed first the last time that ranks failed, even if the run has resumed since."""
    ledger: dict[str, Any] | None
    """Seconds by kind, and goodput."""

    def to_json(self) -> dict[str, Any]:
        """All fields, those of status and progress among the others."""
        tree = asdict(self)
        status = tree.pop("status")
        return {**status.pop("progress"), **status, **tree}


def read_overview(run: Path, *, asks_slurm: bool = True) -> Overview:
    """Look at a run.

    Args:
        run: its folder.
        asks_slurm: for its job; otherwise that is done only where the folder does not say whether it still runs.
    """
    (state, status), job = read_state(run), None
    step = max(complete_steps(run), default=None)
    if asks_slurm or state == "died":
        job = next((job for job in jobs_of_run(run, status) if job.state != GONE), None)
    if state == "died" and job is not None and job.state == "RUNNING":
        state = "running"  # on another machine, on a file system without locks
    return Overview(
        run=str(run),
        state=state,
        stop_requested=is_listed(run / STOP_FILE),
        status=status,
        checkpoint=step,
        checkpoint_age=None if step is None else time.time() - written(checkpoint_folder(run, step) / MANIFEST),
        job=job,
        last_failure=newest_cause(run),
        ledger=read_ledger(run / LEDGER_FILE) or None,
    )


def runs_in(folder: Path) -> list[Path]:
    """The runs of a folder, the one that was written last first."""
    times = {path.parent: written(path) for pattern in DEEP for path in folder.glob(f"{pattern}/{STATUS_FILE}")}
    return sorted(times, key=lambda run: (-times[run], run))


def written(path: Path) -> float:
    """When a file was written, in seconds since the epoch; 0 if it is gone."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def jobs_of_run(run: Path, status: Status) -> Iterator[JobState]:
    """SLURM's word on the job that wrote a run last, then on those that this user has sent for it from here."""
    for job in filter(None, dict.fromkeys([status.job_id, *jobs_of(run)])):
        if (state := find_job(job)) is not None:
            yield state


def read_state(run: Path) -> tuple[str, Status]:
    """The state of a run, as in `Overview`, and what was written last."""
    status = read_status(run / STATUS_FILE) or Status()
    held = [name for name in (LAUNCH_LOCK, RUN_LOCK) if is_locked(run, name)]
    if status.state == "running":
        return "running" if held or is_alive(status) else "died", status
    # A launcher or rank that began after that was written is about to train; one that has not is about to end, or is a
    # launcher that starts ranks again which failed.
    is_new = any(written(run / STATUS_FILE) < written(run / name) for name in held)
    is_starting = is_new or (LAUNCH_LOCK in held and status.state in ("empty", "failed"))
    return "starting" if is_starting else status.state, status


def is_alive(status: Status) -> bool:
    """Whether the process that wrote it is there, as far as this machine can tell: a file system may have no locks."""
    if status.pid is None or status.host != socket.gethostname():
        return False
    with contextlib.suppress(OSError):
        return Path(f"/proc/{status.pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False
