"""One start of a run's ranks on this machine, and the lock under which it happens."""

import contextlib
import os
import time
from collections.abc import Iterator

import psutil

from configs import UserError
from configs.plugins import keep_copies
from configs.process.environment import private_folder
from configs.process.streams import note
from launcher.machine.supervise import RankSupervisor
from launcher.start.outcome import outcome
from launcher.start.ranks import Job, child_environment, torchrun_command
from launcher.start.run_folder import make_ready
from trainer.runs.layout import LAUNCH_LOCK, STATUS_FILE, STUCK_FILE
from trainer.runs.run_lock import RunLock
from trainer.runs.status import LAUNCH_ID, read_status

PATIENCE_WITH_THE_ENDING, PATIENCE_WITH_THE_RUNNING = 15.0, 1.0
"""Seconds to wait for an earlier job, which may still be ending its processes."""
_LOOK_SECONDS = 0.2


@contextlib.contextmanager
def holding_run(job: Job) -> Iterator[None]:
    """Prepare the run's folder, and hold its lock in this block.

    Raises:
        UserError: another job writes the run, or its folder cannot be written.
    """
    make_ready(str(job.folder), fresh=job.fresh, reset=job.reset, parent=job.parent)
    try:
        job.logs.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"output: {str(job.logs)!r} cannot be made: {error.strerror}; choose a folder that can be written"
        ) from error
    before = read_status(job.folder / STATUS_FILE)
    is_running = before is not None and before.state == "running"
    locks = [RunLock(job.folder, LAUNCH_LOCK), RunLock(job.folder)]
    try:
        for lock in locks:
            lock.acquire(PATIENCE_WITH_THE_RUNNING if is_running else PATIENCE_WITH_THE_ENDING)
        locks.pop().release()  # the ranks take it; a run that was started otherwise has it
        keep_copies(job.folder, job.run.plugins)
        yield
    finally:
        for lock in locks:
            lock.release()


def attempt(job: Job, supervisor: RankSupervisor, launch_id: str, *, reset: str | None) -> int:
    """Start the ranks, wait for their end, and say how they ended.

    Args:
        job: what to start.
        supervisor: runs torchrun; its signal handlers are in place.
        launch_id: of this start, the same on all nodes.
        reset: what the ranks reset.

    Returns:
        See `launcher.start.outcome.outcome`.
    """
    if job.node is None or job.node.rank == 0:
        with contextlib.suppress(OSError):
            (job.folder / STUCK_FILE).unlink(missing_ok=True)
    with private_folder() as private:
        command = torchrun_command(job, launch_id, private, reset=reset)
        code = supervisor.run(command, child_environment(os.environ, job=job, launch_id=launch_id, private=private))
        if code < 0:
            _wait_for_orphans(launch_id)
    return outcome(job, launch_id, code, was_stopped=supervisor.was_stopped)


def _wait_for_orphans(launch_id: str) -> None:
    """Wait for ranks that outlived torchrun: they save while holding the run's lock.

    Their watchdogs see to it that they take no longer than a save may.
    """
    is_said = False
    while left := [process.pid for process in psutil.process_iter() if _is_of(process, launch_id)]:
        if not is_said:
            note(f"torchrun is gone; waiting for its ranks to save and end: {', '.join(map(str, left))}")
            is_said = True
        time.sleep(_LOOK_SECONDS)


def _is_of(process: psutil.Process, launch_id: str) -> bool:
    try:
        return bool(process.environ().get(LAUNCH_ID) == launch_id)
    except psutil.Error:
        return False
