"""`zeromt stop`: a run saves and stops, and a job of it that waits is cancelled."""

import math
import time
from pathlib import Path

from configs import UserError
from configs.process.files import naming
from configs.process.files.inside import opened
from configs.process.streams import note
from launcher.monitoring.look import ACTIVE, jobs_of_run, read_state
from launcher.slurm.queue import cancel
from launcher.slurm.record import jobs_of
from trainer.runs.layout import LAUNCH_LOCK, RUN_LOCK, STOP_FILE
from trainer.runs.run_lock import is_locked
from trainer.runs.status import Status

LOOK_SECONDS = 0.2
LINE_SECONDS = 10.0


def stop(*, run: str, wait: bool) -> int:
    """`zeromt stop`: ask a run to save and stop, and wait until it has; of one that waits, cancel the jobs.

    Returns:
        0: stopped or finished, or asked to with --no-wait; 1: the run ended in another way.

    Raises:
        UserError: it is not running, or its folder cannot be written, or the job is not one that was submitted here.
    """
    folder = Path(run)
    with naming("RUN"):
        state, status = read_state(folder)
        if state not in ACTIVE:
            cancel_waiting(folder, state, status)
            return 0
    request = folder / STOP_FILE
    try:
        opened(request, "ab").close()
    except OSError as error:
        raise UserError(
            f"RUN: {str(request)!r} cannot be written: {error.strerror}; choose a folder that can be written"
        ) from error
    if not wait:
        note(f"{run}: asked to save and stop")
        return 0
    state, status = wait_for_end(folder)
    request.unlink(missing_ok=True)  # of a run that ended before it looked
    note(f"{run}: {state}{at_step(status)}" + (f": {status.error}" if status.error else ""))
    return 0 if state in ("stopped", "finished") else 1


def cancel_waiting(folder: Path, state: str, status: Status) -> None:
    """Cancel the jobs of a run that wait in the queue, as far as this user has submitted them from here.

    Raises:
        UserError: there are none, or others.
    """
    own, waiting = jobs_of(folder), [job.id for job in jobs_of_run(folder, status) if job.state == "PENDING"]
    if others := [job for job in waiting if job not in own]:
        raise UserError(
            f"RUN: {str(folder)!r} waits as job {others[0]}, submitted elsewhere; use `scancel {others[0]}`"
        )
    if not waiting:
        raise UserError(f"RUN: {str(folder)!r} is not running; its state is {state}")
    for job in reversed(waiting):  # otherwise the next one would begin when the one before it is gone
        cancel(job)
        note(f"{folder}: job {job} was waiting, and is taken out of the queue")


def wait_for_end(folder: Path) -> tuple[str, Status]:
    """Wait until no process writes the run any more, so that it can be started again, and print progress."""
    begin, said = time.monotonic(), -math.inf
    while (seen := read_state(folder))[0] in ACTIVE or is_locked(folder, LAUNCH_LOCK) or is_locked(folder, RUN_LOCK):
        now = time.monotonic()
        if now - said >= LINE_SECONDS:
            note(f"{folder}: waiting for it to save and stop{at_step(seen[1])}, {now - begin:.0f} s")
            said = now
        time.sleep(LOOK_SECONDS)
    return seen


def at_step(status: Status) -> str:
    """Where it was then, if that is known."""
    return "" if status.step is None else f" at step {status.step}"
