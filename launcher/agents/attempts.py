"""Starts a job's ranks on this machine, and restarts them when they fail."""

import contextlib
import os
import signal
import time
import uuid
from collections.abc import Mapping
from pathlib import Path

from configs import UserError
from configs.plugins import keep_copies
from configs.process.environment import PRIVATE, private_folder
from configs.process.files.inside import is_listed, read_text
from configs.process.streams import note
from launcher.agents.agent import ALONE, LAUNCHER_PID
from launcher.agents.job import Job, child_environment, is_orphaned, outcome, torchrun_command
from launcher.machine.processes import processes_with
from launcher.machine.supervise import Supervisor
from launcher.start.run_folder import make_ready
from trainer.runs.layout import LAUNCH_LOCK, STATUS_FILE, STOP_FILE, STUCK_FILE, newest_step
from trainer.runs.parents import check_beginning
from trainer.runs.run_lock import RunLock
from trainer.runs.status import LAUNCH_ID, Status, read_status, write_status

PATIENCE_WITH_THE_ENDING, PATIENCE_WITH_THE_RUNNING = 15.0, 1.0
"""Seconds to wait for an earlier job, which may still be ending its processes."""
_STATUS_SECONDS = 20.0
"""Seconds to wait for the status of rank 0, which is on another machine."""
_LOOK_SECONDS = 0.2
_MONITORS_SECONDS = 10.0
"""Extra seconds, so that the watchdogs' monitors, which know more, kill orphans first."""


def run_job(job: Job, supervisor: Supervisor, *, cores: int, max_restarts: int, fresh: bool, begin: str) -> int:
    """Run a job on this machine until it ends, holding the lock on the run's folder.

    Args:
        job: the job.
        supervisor: runs the ranks; its signal handlers are in place.
        cores: number of cores for all ranks together.
        max_restarts: restarts after failures; every new checkpoint resets the count.
        fresh: start at step 0, and rename an existing run.
        begin: the message to print once the job can start.

    Returns:
        0 finished; 2 refused by the ranks; 75 stopped on request after a complete save; 1 anything else.

    Raises:
        UserError: another job writes the run, or its folder cannot be written.
    """
    check_beginning(job.folder, job.parent, fresh=fresh, reset=job.reset)
    if not job.is_first_node:  # the first node prepares the folder before the others join
        return _attempts(job, supervisor, cores, max_restarts, first_step=0 if fresh else newest_step(job.folder))
    make_ready(str(job.folder), fresh=fresh, parent=job.parent)
    try:
        job.logs.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"output: {str(job.logs)!r} cannot be made: {error.strerror}; choose a folder that can be written"
        ) from error
    lock = RunLock(job.folder, LAUNCH_LOCK)
    before = read_status(job.folder / STATUS_FILE)
    is_running = before is not None and before.state == "running"
    lock.acquire(patience_seconds=PATIENCE_WITH_THE_RUNNING if is_running else PATIENCE_WITH_THE_ENDING)
    try:
        keep_copies(job.folder, job.plugins)
        note(begin)
        return _attempts(job, supervisor, cores, max_restarts, first_step=newest_step(job.folder))
    finally:
        lock.release()


def _attempts(job: Job, supervisor: Supervisor, cores: int, max_restarts: int, *, first_step: int) -> int:
    """Start the ranks, and restart them when they fail. torchrun's own restarts would repeat a refusal or a stop.

    Each node of a job decides for itself, from the same folder; if one decides differently, the others miss it at the
    next rendezvous, and end.
    """
    restarts = Restarts(max_restarts, first_step)
    num_attempts = 0
    while True:
        num_attempts += 1
        reset = job.reset if newest_step(job.folder) == first_step else None
        code = _attempt(job, supervisor, cores, _launch_id(job, num_attempts), reset=reset)
        if code == ALONE:
            return 1
        if code != 1 or supervisor.was_stopped:
            return code
        if is_listed(job.folder / STOP_FILE):
            note(f"the ranks failed, and {job.folder / STOP_FILE} asks to stop: they are not started again")
            (job.folder / STOP_FILE).unlink(missing_ok=True)
            return code
        if not restarts.may_follow(newest_step(job.folder)):
            if job.node is None:  # otherwise the cluster decides what follows
                note(f"{_what_is_left(newest_step(job.folder))}; logs: {job.logs}")
            if restarts.limit:
                note(
                    f"no progress since step {restarts.step}: the ranks failed {restarts.num_failures} times "
                    "without a new checkpoint; given up"
                )
            return code
        number = f"restart {restarts.num_failures} of {restarts.limit}"
        note(f"the ranks failed; {number} since step {restarts.step}, from the newest checkpoint")


def _what_is_left(step: int) -> str:
    """The line on what is saved after a failure and what to do; `step` is that of the newest checkpoint."""
    if not step:
        return "nothing was saved yet: once the cause is fixed, the same command begins again"
    return f"step {step} is saved: once the cause is fixed, the same command, but for --fresh and --reset, resumes it"


def _launch_id(job: Job, number: int) -> str:
    """The id of an attempt, the same on all nodes of a job."""
    if job.node is None:
        return f"{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:8]}"
    return f"{job.node.job_id}-{number}"


def _attempt(job: Job, supervisor: Supervisor, cores: int, launch_id: str, *, reset: str | None) -> int:
    """Start the ranks and wait for their end; ALONE if the other nodes did not come."""
    environment = child_environment(
        os.environ,
        job=job,
        cores=cores,
        launch_id=launch_id,
        launcher_pid=os.getpid(),
    )
    stuck = job.folder / STUCK_FILE
    if job.is_first_node:
        with contextlib.suppress(OSError):
            stuck.unlink(missing_ok=True)
    with private_folder() as private:
        agent_code = supervisor.run(
            torchrun_command(job, launch_id, reset=reset), {**environment, PRIVATE: str(private)}
        )
        if agent_code < 0:
            _wait_for_orphans({LAUNCH_ID: launch_id, LAUNCHER_PID: str(os.getpid())}, job.save_seconds)
    status = _last_word(job, launch_id, agent_code)
    code = outcome(status, agent_code, was_stopped=supervisor.was_stopped)
    is_ours_to_say = status is None or status.state == "running" or is_orphaned(status)
    if code == 1 and job.is_first_node and is_ours_to_say:
        by = f"torchrun was killed by {signal.Signals(-agent_code).name}" if agent_code < 0 else "the ranks were killed"
        error = _last_line(stuck) or f"{by}; logs: {job.logs}"
        with contextlib.suppress(OSError):  # a full disk: the exit code says it too
            write_status(job.folder, "failed", exit_code=1, error=error, launch_id=launch_id)
    return ALONE if agent_code == ALONE else code


def _wait_for_orphans(variables: Mapping[str, str], seconds: float) -> None:
    """Wait for ranks that outlived their agent: they save while holding the run's lock, which restarted ranks need.

    Each has the time allowed for a save, after which its watchdog's monitor or this process kills it.

    Args:
        variables: of their environment, by which they are recognised; nodes of a job may share a machine.
        seconds: allowed for a save.
    """
    is_said = False
    end = time.monotonic() + seconds + _MONITORS_SECONDS
    while left := processes_with(variables):
        if not is_said:
            note(f"torchrun is gone; waiting for its ranks to save and end: {', '.join(map(str, left))}")
            is_said = True
        if time.monotonic() >= end:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        time.sleep(_LOOK_SECONDS)


def _last_word(job: Job, launch_id: str, agent_code: int) -> Status | None:
    """The status that rank 0 wrote. If these ranks ended well, wait for it: rank 0 may be on another machine."""
    ended_well = agent_code not in (1, ALONE, -signal.SIGKILL)
    deadline = time.monotonic() + (_STATUS_SECONDS if job.node is not None and ended_well else 0.0)
    while True:
        status = read_status(job.folder / STATUS_FILE, launch_id)
        if status is None or status.is_settled or time.monotonic() >= deadline:
            return status
        time.sleep(_LOOK_SECONDS)


def _last_line(path: Path) -> str | None:
    try:
        lines = read_text(path, errors="replace", most=None).splitlines()
    except OSError:
        return None
    return lines[-1] if lines else None


class Restarts:
    """Counts failures since the last new checkpoint."""

    def __init__(self, limit: int, newest_step: int) -> None:
        """Begin.

        Args:
            limit: restarts without a new checkpoint before giving up.
            newest_step: of the existing checkpoints.
        """
        self.limit = limit
        self.step = newest_step
        """The newest checkpoint's step."""
        self.num_failures = 0
        """Without progress."""

    def may_follow(self, newest_step: int) -> bool:
        """Whether to restart after a failure.

        Args:
            newest_step: of the checkpoints that now exist.
        """
        if newest_step > self.step:
            self.step, self.num_failures = newest_step, 0
        self.num_failures += 1
        return self.num_failures <= self.limit
