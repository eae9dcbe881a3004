"""One start of a run's ranks on this machine: the lock under which it happens, and how it ended.

That is in the run's status.json and failures/, on whichever machine they were written.
"""

import contextlib
import os
import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from configs import UserError
from configs.plugins import keep_copies
from configs.process.environment import private_folder
from configs.process.files.inside import read_json, read_text
from configs.process.signals import ORPHANED, STOPPED
from configs.process.streams import note, tell
from launcher.machine.supervise import RankSupervisor
from launcher.start.ranks import ENDED, TRACE, Job, child_environment, torchrun_command
from launcher.start.run_folder import make_ready
from trainer.runs.failure import STACKS, Failure, find_cause, find_stuck_ranks, leave_note, read_failures
from trainer.runs.layout import FAILURES, LAUNCH_LOCK, STATUS_FILE
from trainer.runs.run_lock import RunLock
from trainer.runs.status import EXIT_CODES, LAUNCH_ID, read_status, write_status

PATIENCE_WITH_THE_ENDING, PATIENCE_WITH_THE_RUNNING = 15.0, 1.0
"""Seconds to wait for an earlier job, which may still be ending its processes."""
_LOOK_SECONDS = 0.2
_NOTES_SECONDS = 2.0
"""Seconds to wait for the notes of other machines, where a launcher writes that of a rank which was killed."""
_TAIL_LINES = 80


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
        See `outcome`.
    """
    with private_folder() as private:
        command = torchrun_command(job, launch_id, private, reset=reset)
        code = supervisor.run(command, child_environment(os.environ, job=job, launch_id=launch_id, private=private))
        if code < 0:
            _wait_for_orphans(launch_id)
        note_ends(job.folder, launch_id, private)
    return outcome(job, launch_id, code, was_stopped=supervisor.was_stopped)


def _wait_for_orphans(launch_id: str) -> None:
    """Wait for ranks that outlived torchrun: they save while holding the run's lock.

    The limits of their activities see to it that they end.
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


def note_ends(run: Path, launch_id: str, private: Path) -> None:
    """Leave notes for the ranks of this machine that could not: which hung, or were killed as far as torchrun knows.

    Args:
        run: its folder.
        launch_id: of this start.
        private: the folder of this start on this machine, with what hung ranks and NCCL's recorder have written.
    """
    for path, failure in find_stuck_ranks(private):
        tell(f"zeromt: rank {failure.rank} is {failure.message}; its stacks: {run / FAILURES / launch_id / path.name}")
        leave_note(run, launch_id, failure)
    with contextlib.suppress(OSError):  # a full disk
        for path in (*private.glob(f"*{STACKS}"), *private.glob(f"{TRACE}*")):
            if path.stat().st_size:
                (run / FAILURES / launch_id).mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, run / FAILURES / launch_id)
    with contextlib.suppress(FileNotFoundError):
        ended = read_json(private / ENDED)
        for rank in {*map(int, ended)} - {*read_failures(run, launch_id)}:
            how, at = ended[str(rank)]
            leave_note(run, launch_id, Failure(rank=rank, host=socket.gethostname(), time=float(at), message=how))


def outcome(job: Job, launch_id: str, torchrun: int, *, was_stopped: bool) -> int:
    """The exit code of a start. What failed first is said on stderr, and in status.json.

    Args:
        job: what was started.
        launch_id: of this start.
        torchrun: its exit code, which tells no more than whether all ranks of this machine ended as they had agreed.
        was_stopped: whether a signal asked the launcher to stop.

    Returns:
        0 finished; 2 refused; 75 stopped after a complete save, or before there was anything to save; 1 failed.
    """
    status = read_status(job.folder / STATUS_FILE, launch_id)
    is_orphaned = status is not None and status.stop_reason == ORPHANED and not was_stopped
    if status is not None and status.state in EXIT_CODES and not is_orphaned:
        if status.state == "refused":
            notes = read_failures(job.folder, launch_id)
            if not (0 in notes and notes[0].says_all):  # rank 0 has shown its own refusal
                for line in _lines_of(find_cause(notes)):
                    tell(f"zeromt: error: {line}")
        return status.exit_code
    if torchrun == 0 or (status is None and was_stopped):  # at 0 the disk has no room for the status
        return STOPPED if was_stopped else 0
    return _failed(job, launch_id, torchrun)


def _lines_of(failure: Failure | None) -> list[str]:
    return [] if failure is None else failure.message.splitlines()


def _failed(job: Job, launch_id: str, torchrun: int) -> int:
    if job.node is not None:
        time.sleep(_NOTES_SECONDS)
    notes = read_failures(job.folder, launch_id)
    cause = find_cause(notes)
    by = f"torchrun ended with exit code {torchrun}" if torchrun > 0 else f"torchrun was killed by signal {-torchrun}"
    if cause is None:
        tell(f"zeromt: the ranks failed: {by}; logs: {job.logs}")
    else:
        tell(f"zeromt: rank {cause.rank} on {cause.host} failed first: {cause.first_line}")
        if others := ", ".join(str(rank) for rank in sorted(notes) if rank != cause.rank):
            tell(f"zeromt: stopped because of it: rank {others}")
        for line in _details(job, launch_id, cause):
            tell(line)
    if job.node is None or job.node.rank == 0:
        with contextlib.suppress(OSError):  # a full disk: the lines above say it too
            error = str(cause) if cause is not None else f"{by}; logs: {job.logs}"
            write_status(job.folder, "failed", error=error, launch_id=launch_id, is_cause=True)
    return 1


def _details(job: Job, launch_id: str, cause: Failure) -> list[str]:
    """The traceback, or the end of the rank's log if there is none; empty if the message says everything."""
    if cause.says_all:
        return []
    if cause.traceback:
        return ["zeromt: its traceback:", *(f"    {line}" for line in cause.traceback.rstrip().splitlines())]
    local = cause.rank - (0 if job.node is None else job.node.rank * job.num_processes)
    for log in sorted(job.logs.glob(f"{launch_id}_*/attempt_*/{local}/stderr.log")):
        with contextlib.suppress(OSError):
            lines = read_text(log, errors="replace", most=None).splitlines()[-_TAIL_LINES:]
            return [f"zeromt: the end of {log}:", *(f"    {line}" for line in lines)] if lines else []
    return []
