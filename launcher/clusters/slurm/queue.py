"""The batch system's word on a job, where it can be asked."""

import re
import subprocess
from dataclasses import dataclass

_JOB_ID = re.compile(r"\d+(_\d+)?")
_PATIENCE_SECONDS = 10
UNKNOWN = "UNKNOWN"


@dataclass(kw_only=True, slots=True, frozen=True)
class Job:
    """A SLURM job."""

    id: str
    state: str
    """As squeue calls it (PENDING, RUNNING, COMPLETING, ...); GONE: it is not in the queue any more; UNKNOWN: squeue is
    not here, or does not answer."""
    reason: str | None = None
    """Why it waits."""
    time_left: str | None = None
    """To its time limit, as squeue writes it: days-hours:minutes:seconds."""


def find_job(job_id: str | None, command: str = "squeue") -> Job | None:
    """Ask SLURM for a job, for ten seconds at most.

    Args:
        job_id: None, or what is no number of a job, gives None.
        command: squeue's path or name.
    """
    if job_id is None or not _JOB_ID.fullmatch(job_id):
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
        return Job(id=job_id, state=UNKNOWN)
    state, _, rest = asked.stdout.strip().partition("\n")[0].partition("|")
    if state:
        reason, _, left = rest.partition("|")
        is_waiting = reason not in ("", "None")
        has_limit = left not in ("", "INVALID", "NOT_SET", "UNLIMITED")
        return Job(id=job_id, state=state, reason=reason if is_waiting else None, time_left=left if has_limit else None)
    # A job that has left the queue is listed as nothing at first, and is an invalid id after some minutes.
    is_gone = asked.returncode == 0 or "Invalid job id" in asked.stderr
    return Job(id=job_id, state="GONE" if is_gone else UNKNOWN)
