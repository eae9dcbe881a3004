"""Asks SLURM for the state of a job."""

import os
import re
import subprocess
from pathlib import Path

from launcher.jobs.job import GONE, UNKNOWN, JobState

JOB_ID = re.compile(r"\d+(_\d+)?")
_PATIENCE_SECONDS = 10


def find_job(job_id: str | None, command: str = "squeue") -> JobState | None:
    """Ask SLURM for a job, for ten seconds at most.

    Args:
        job_id: for None, or if it is not a job's number, the result is None.
        command: squeue's path or name.
    """
    if job_id is None or not JOB_ID.fullmatch(job_id):
        return None
    try:
        asked = subprocess.run(
            [command, "--noheader", "--jobs", job_id, "--format", "%T|%r|%L"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PATIENCE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return JobState(id=job_id, state=UNKNOWN)
    state, _, rest = asked.stdout.strip().partition("\n")[0].partition("|")
    if state:
        reason, _, left = rest.partition("|")
        is_waiting = reason not in ("", "None")
        has_limit = left not in ("", "INVALID", "NOT_SET", "UNLIMITED")
        return JobState(
            id=job_id, state=state, reason=reason if is_waiting else None, time_left=left if has_limit else None
        )
    # For a job that has left the queue, squeue first lists nothing and after some minutes reports an invalid id.
    return JobState(id=job_id, state=GONE if asked.returncode == 0 or "Invalid job id" in asked.stderr else UNKNOWN)


def writes_into(job_id: str, logs: Path) -> bool:
    """Ask SLURM whether a job is this user's and has its output in a folder; False if SLURM does not say so.

    Args:
        job_id: its number.
        logs: the folder.
    """
    if not JOB_ID.fullmatch(job_id):
        return False
    try:
        asked = subprocess.run(
            ["scontrol", "show", "job", job_id],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PATIENCE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    lines = [line.strip() for line in asked.stdout.partition("\n\n")[0].splitlines()]  # of an array, the first task
    is_mine = any(re.match(rf"UserId=[^ ]*\({os.getuid()}\) ", line) for line in lines)
    outputs = [Path(line.removeprefix("StdOut=")) for line in lines if line.startswith("StdOut=/")]
    return is_mine and any(output.parent.resolve() == logs.resolve() for output in outputs)
