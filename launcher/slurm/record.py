"""The jobs that this user has sent for a run, or for a command in a folder: a file for each in the user's state folder.

`$XDG_STATE_HOME/zeromt/HASH.json` has a line of JSON, then the jobs' numbers, a line each, as sbatch prints them. Not
in the run, which may be a stranger's and name any job of the caller's.
"""

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from configs import UserError
from configs.process.files import disk_errors
from configs.process.files.inside import read_json, write_text
from configs.process.text import digest
from launcher.slurm.queue import GONE, UNKNOWN, find_job, writes_into
from trainer.runs.layout import JOBS_FILE, LOGS
from trainer.runs.status import Status


def jobs_of(run: Path, command: Sequence[str] = ()) -> list[str]:
    """The jobs that this user has sent last from here, in order; none where there is no record.

    Args:
        run: a run's folder; or the folder in which a command was sent.
        command: its words.
    """
    with contextlib.suppress(OSError), _file(run, command).open() as file:
        return read(file)[1]
    return []


@contextlib.contextmanager
def held(folder: Path, command: Sequence[str]) -> Iterator[IO[str]]:
    """The record's file, which no other process reads or writes meanwhile; see `jobs_of`."""
    path = _file(folder, command)
    with disk_errors("XDG_STATE_HOME", path.parent):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with path.open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file


def read(file: IO[str]) -> tuple[Mapping[str, Any], list[str]]:
    """What was sent, and its jobs; nothing where the file says nothing that can be read."""
    file.seek(0)
    with contextlib.suppress(ValueError, TypeError):
        first, *lines = file.read().splitlines() or [""]
        return dict(json.loads(first)), [line.partition(";")[0] for line in lines]
    return {}, []


def begin(file: IO[str], sent: Mapping[str, Any]) -> None:
    """Note what is about to be sent, in place of what was there."""
    file.truncate(0)
    file.write(json.dumps(sent) + "\n")
    file.flush()


def _file(folder: Path, command: Sequence[str]) -> Path:
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state, "zeromt", f"{digest([str(folder.resolve()), *command])[:32]}.json")


@dataclass(kw_only=True, slots=True, frozen=True)
class RunsJob:
    """A job of a run, and the jobs submitted with it."""

    run: Path
    """The run's folder."""
    id: str
    together: Sequence[str]
    """All jobs submitted together with it, in order."""
    is_array: bool = False
    """Whether they run a command in parts."""

    def check_owned(self, job: str) -> None:
        """Check that SLURM's own record ties a job to this run, before it is cancelled: the run may be a stranger's.

        Raises:
            UserError: it does not.
        """
        if not writes_into(job, self.run / LOGS):
            raise UserError(
                f"RUN: {self.run} names job {job}, and slurm has no job of yours with that name and these logs; "
                "end it by scancel if it is yours"
            )

    def to_cancel(self) -> list[str]:
        """The jobs that `zeromt stop` cancels: those that wait in the queue, and all of an array, which is no run."""
        states = ((job, find_job(job)) for job in self.together)
        return [
            job
            for job, state in states
            if state is not None
            and (state.state == "PENDING" or (self.is_array and state.state not in (GONE, UNKNOWN)))
        ]


def write_submitted(run: Path, jobs: Sequence[str], *, is_array: bool = False) -> None:
    """Record submitted jobs and their run's folder; in a copy of the folder the record does not count.

    Raises:
        OSError: it cannot be written.
    """
    tree = {"run": str(run.resolve()), "jobs": jobs, "is_array": is_array, "time": time.time()}
    write_text(run / LOGS / JOBS_FILE, json.dumps(tree) + "\n")
    with held(run, ()) as file:
        begin(file, {"folder": str(run.resolve())})
        file.writelines(f"{job}\n" for job in jobs)


def job_of_run(run: Path, written: Status | None) -> RunsJob | None:
    """The job that writes a run or will: the newest of the one in its status and the submitted ones.

    Args:
        run: its folder.
        written: the run's status.
    """
    submitted = _read(run)
    job = written.job_id if written is not None else None
    if submitted and (written is None or (written.updated or 0.0) < submitted["time"]):
        job = submitted["jobs"][0]
    if job is None:
        return None
    if submitted and job in submitted["jobs"]:
        return RunsJob(run=run, id=job, together=submitted["jobs"], is_array=submitted["is_array"])
    return RunsJob(run=run, id=job, together=[job])


def _read(run: Path) -> dict[str, Any] | None:
    """The record for a folder; None if there is none or it is invalid."""
    try:
        tree = read_json(run / LOGS / JOBS_FILE)
        jobs = [job for job in tree["jobs"] if isinstance(job, str)]
        record = {"jobs": jobs, "time": float(tree["time"]), "is_array": tree.get("is_array") is True}
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return record if jobs and tree.get("run") == str(run.resolve()) else None
