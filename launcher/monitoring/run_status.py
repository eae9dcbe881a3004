"""What a run is doing, from the files and locks of its folder. Does not import torch."""

import dataclasses
import socket
from dataclasses import dataclass
from pathlib import Path

from configs.process.files.inside import is_listed, read_text
from configs.process.kernel import state_of
from launcher.monitoring.progress import Progress, read_progress
from launcher.slurm.queue import JobState, find_job
from launcher.slurm.record import job_of_run
from trainer.runs.failure import Failure, newest_cause
from trainer.runs.layout import LAUNCH_LOCK, LEDGER_FILE, RUN_LOCK, STATUS_FILE, STOP_FILE, STUCK_FILE, complete_steps
from trainer.runs.ledger import read_figures
from trainer.runs.metrics_file import Shown, read_shown
from trainer.runs.run_lock import holder_since, is_locked
from trainer.runs.status import Status, read_status

ACTIVE = ("starting", "running")


@dataclass(kw_only=True, slots=True, frozen=True)
class RunStatus:
    """The state of a run."""

    run: str
    state: str
    """starting, running, finished, stopped, failed, refused; died: its processes ended without a word; empty: it was
    never started."""
    stop_requested: bool
    stop_reason: str | None
    """For a stopped run "stop file" or a signal's name; for a finished one the limit that it reached."""
    step: int | None
    """Updates done when the state was written."""
    updated: float | None
    """Time of writing, in seconds since the epoch."""
    pid: int | None
    host: str | None
    error: str | None
    """The error of a failed or refused run, with the rank that failed first and its host."""
    checkpoints: list[int]
    """Steps of complete checkpoints."""
    ledger: dict[str, float] | None
    """Seconds by kind, and goodput."""
    refusal: str | None = None
    """Why the last start was refused, of a run that had come to something before."""
    stuck: list[str]
    """Which ranks were ended by their watchdogs."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Overview:
    """A run as `zeromt status` shows it."""

    status: RunStatus
    progress: Progress
    job: JobState | None
    """The batch job that wrote the run last."""
    last_failure: Failure | None
    """What failed first the last time that ranks failed, also where the run goes on since."""
    shown: Shown = dataclasses.field(default_factory=lambda: Shown.of(None))
    """How to show the scores."""


def read_overview(folder: Path) -> Overview:
    """Look at a run's folder, and ask SLURM for its job."""
    written = read_status(folder / STATUS_FILE)
    status = read_run(folder)
    runs_job = job_of_run(folder, written)
    job = None if runs_job is None else find_job(runs_job.id)
    if status.state == "died" and job is not None and job.state == "RUNNING":
        status = dataclasses.replace(status, state="running")  # on another machine, on a file system without locks
    return Overview(
        status=status,
        progress=read_progress(folder, status.checkpoints, step=status.step),
        job=job,
        last_failure=newest_cause(folder),
        shown=read_shown(folder),
    )


def read_run(folder: Path) -> RunStatus:
    """Look at what is quick to look at."""
    written = read_status(folder / STATUS_FILE)
    try:
        stuck = read_text(folder / STUCK_FILE, errors="replace").splitlines()
    except OSError:
        stuck = []
    return RunStatus(
        run=str(folder),
        state=_state(folder, written),
        stop_requested=is_listed(folder / STOP_FILE),
        stop_reason=written.stop_reason if written else None,
        step=written.step if written else None,
        updated=written.updated if written else None,
        pid=written.pid if written else None,
        host=written.host if written else None,
        error=written.error if written else None,
        checkpoints=complete_steps(folder),
        ledger=read_figures(folder / LEDGER_FILE),
        refusal=written.refusal if written else None,
        stuck=stuck,
    )


def _state(folder: Path, written: Status | None) -> str:
    """What was written last, if it still holds."""
    is_launched = is_locked(folder, LAUNCH_LOCK)
    if written is not None and written.state == "running":
        return "running" if is_launched or is_locked(folder, RUN_LOCK) or _is_alive(written) else "died"
    if is_launched:
        # A launcher that began after that was written is about to start ranks; one that has not is about to end, or
        # starts ranks that failed again.
        since = holder_since(folder, LAUNCH_LOCK) or 0.0
        if written is None or (written.updated or 0.0) < since or written.state == "failed":
            return "starting"
    return "empty" if written is None else written.state


def _is_alive(written: Status) -> bool:
    """Whether the process that wrote it is there, as far as this machine can tell: a file system may have no locks."""
    if written.pid is None or written.host != socket.gethostname():
        return False
    return state_of(written.pid) not in ("", "Z")
