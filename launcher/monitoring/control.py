"""`zeromt stop` and `zeromt log`: a run saves and stops, or a waiting job is cancelled; and what a run has printed."""

import math
import re
import subprocess
import sys
import time
from pathlib import Path

from configs import UserError
from configs.process.files import naming
from configs.process.files.inside import opened
from configs.process.streams import note
from launcher.monitoring.look import ACTIVE, jobs_of_run, read_state, written
from launcher.slurm.queue import cancel
from launcher.slurm.record import jobs_of
from trainer.runs.layout import LAUNCH_LOCK, LOGS, RUN_LOCK, STOP_FILE
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
    """At which step it is, if that is known."""
    return "" if status.step is None else f" at step {status.step}"


def log(*, run: str, follow: bool) -> int:
    """`zeromt log`: print it, and with `follow` what is added.

    Raises:
        UserError: there is no output, or one of its files is not a regular file.
    """
    logs = Path(run, LOGS)
    shown = newest_logs(logs)
    if not shown:
        raise UserError(f"RUN: {str(logs)!r} has no output; of `launch local`, rank 0 writes to its terminal alone")
    with naming("RUN"):
        for file in shown:
            opened(file).close()
    command = ["tail", *(["-F"] if follow else []), "-n", "+1", "--", *map(str, shown)]
    if not sys.stdout.isatty():
        return subprocess.run(command, check=False).returncode
    # through our own standard output, on which text cannot control the terminal
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as child:
        for line in child.stdout or ():
            sys.stdout.write(line.decode(errors="backslashreplace"))
            sys.stdout.flush()
    return child.returncode


def newest_logs(logs: Path) -> list[Path]:
    """Log files of the newest job, all tasks of an array, or of the ranks of the last start on each node.

    Args:
        logs: folder of logs in the run's.
    """
    starts = {
        path: written(path) for path in (*logs.glob("*/"), *logs.glob("node-*/*/")) if any(path.glob("attempt_*"))
    }
    jobs = {path: written(path) for path in logs.glob("*.out")}
    if jobs and max(jobs.values()) >= max(starts.values(), default=0.0):
        stem = re.sub(r"(-\d+)_\d+$", r"\1", max(jobs, key=lambda path: jobs[path]).stem)
        return sorted(path for path in jobs if path.stem == stem or path.stem.startswith(f"{stem}_"))
    newest = {path.parent: path for path in sorted(starts, key=lambda path: starts[path])}
    return sorted(file for path in newest.values() for file in path.rglob("std*.log") if file.stat().st_size)
