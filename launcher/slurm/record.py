"""The record of submitted jobs: `logs/jobs.json` in the run's folder."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configs import UserError
from configs.process.files.inside import read_json, write_text
from launcher.slurm.queue import GONE, UNKNOWN, find_job, writes_into
from trainer.runs.layout import JOBS_FILE, LOGS
from trainer.runs.status import Status


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
