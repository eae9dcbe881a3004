"""Asks SLURM, and waits for jobs, which note their exit codes themselves: so accounting is not needed."""

import contextlib
import os
import re
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from configs import UserError
from configs.process.files.inside import is_listed, read_text
from configs.process.streams import note, tell

GONE, UNKNOWN = "GONE", "UNKNOWN"
JOB_ID = re.compile(r"\d+(_\d+)?")
_SBATCH_SECONDS, _PATIENCE_SECONDS = 120, 10
_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 1.0, 30.0
"""Seconds between two looks at the queue, at first and after some time."""
_LINES = 8


def sbatch(script: str, *options: str, stdout: IO[str] | None = None) -> None:
    """Run sbatch with a script on its stdin. It comes to its end whatever happens to this process.

    Args:
        script: the batch script.
        options: of sbatch.
        stdout: the file that gets what it prints.

    Raises:
        UserError: it is missing, or refuses.
    """
    # Without what is of a surrounding allocation, which the job would inherit.
    own = {name: value for name, value in os.environ.items() if name == "SLURM_CONF" or not name.startswith("SLURM_")}
    try:
        done = subprocess.run(
            ["sbatch", *options],
            input=script,
            stdout=stdout or subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=own,
            text=True,
            timeout=_SBATCH_SECONDS,
            start_new_session=True,
            check=False,
        )
    except FileNotFoundError as error:
        raise UserError("sbatch: no such command; use a machine that submits jobs, or --dry-run") from error
    except subprocess.TimeoutExpired as error:
        raise UserError(
            f"sbatch: no answer within {_SBATCH_SECONDS} s; try again when the controller answers"
        ) from error
    if done.returncode != 0:
        said = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
        raise UserError(f"sbatch: {said}; ask for what this cluster takes, see --site, --set and --dry-run")


@dataclass(kw_only=True, slots=True, frozen=True)
class JobState:
    """The state of a job."""

    id: str
    state: str
    """As squeue calls it (PENDING, RUNNING, COMPLETING, ...); GONE: it is not in the queue any more; UNKNOWN: SLURM is
    not here, or does not answer."""
    reason: str | None = None
    """Why it waits."""
    time_left: str | None = None
    """Time left to its limit: days-hours:minutes:seconds."""


def find_job(job_id: str, command: str = "squeue") -> JobState | None:
    """Ask SLURM for a job, for ten seconds at most.

    Args:
        job_id: its number; if it is none, the result is None.
        command: squeue's path or name.
    """
    if not JOB_ID.fullmatch(job_id):
        return None
    asked = _asked([command, "--noheader", "--jobs", job_id, "--format", "%T|%r|%L"])
    if asked is None:
        return JobState(id=job_id, state=UNKNOWN)
    state, _, rest = asked.stdout.strip().partition("\n")[0].partition("|")
    if state:
        reason, _, left = rest.partition("|")
        return JobState(
            id=job_id,
            state=state,
            reason=None if reason in ("", "None") else reason,
            time_left=None if left in ("", "INVALID", "NOT_SET", "UNLIMITED") else left,
        )
    # For a job that has left the queue, squeue first lists nothing and after some minutes reports an invalid id.
    return JobState(id=job_id, state=GONE if asked.returncode == 0 or "Invalid job id" in asked.stderr else UNKNOWN)


def list_jobs(*options: str) -> list[str]:
    """What squeue prints with these options, a line each; nothing where it does not answer."""
    asked = _asked(["squeue", "--noheader", *options])
    return [] if asked is None else list(dict.fromkeys(asked.stdout.splitlines()))


def jobs_named(name: str) -> list[str]:
    """The numbers of this user's jobs of a name that are in the queue."""
    return list_jobs("--me", "--name", name, "--format", "%F")


def cancel(job_id: str) -> None:
    """Cancel a job.

    Raises:
        UserError: SLURM does not answer, or refuses.
    """
    asked = _asked(["scancel", job_id])
    if asked is None:
        raise UserError("scancel: no answer; use a machine that reaches the controller")
    if asked.returncode != 0:
        raise UserError(f"scancel: {' '.join(asked.stderr.split())}; only your own jobs can be stopped")


def wait_for(jobs: Sequence[str], log: str) -> int:
    """Wait until the last of some jobs has ended, or all have left the queue; requeued ones are waited for.

    Args:
        jobs: each follows the one before.
        log: the path of their logs, without number and suffix.

    Returns:
        The exit code; 1 if none was left. Unless it is 0, the end of the log goes to stderr.
    """
    pause, gone = _PAUSE_SECONDS, 0
    while exit_code(jobs[-1:], log) is None and gone < 2:  # one that is being put back in the queue may not be listed
        gone = gone + 1 if all(state is None or state.state == GONE for state in map(find_job, jobs)) else 0
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
    code, job = exit_code(jobs, log) or (1, "")
    if code and not job:
        note(f"job {', '.join(jobs)} left no exit code: it was cancelled, killed, or out of time or memory")
        for line in list_jobs("--states=all", "--jobs", ",".join(jobs), "--format", "job %i: %T"):
            note(line)
    if code:
        _tell_end([job] if job else jobs, Path(log))
    return code


def exit_code(jobs: Sequence[str], log: str) -> tuple[int, str] | None:
    """The exit code that the last of these jobs has noted that has noted any, and which that is, as N or N_TASK."""
    for job in reversed(jobs):
        with contextlib.suppress(ValueError):  # it is just being written
            if is_listed(file := Path(f"{log}-{job}.code")):
                code, who = read_text(file).split()
                return int(code), who
    return None


def _tell_end(jobs: Sequence[str], log: Path) -> None:
    """Show the end of the newest log of these jobs."""
    patterns = [f"{log.name}-{job}{tasks}.out" for job in jobs for tasks in ("", "_*")]
    logs = [path for pattern in patterns for path in log.parent.glob(pattern)]
    for newest in sorted(logs, key=lambda path: path.stat().st_mtime)[-1:]:
        tell(f"{newest}:")
        for line in read_text(newest, errors="replace", most=None).splitlines()[-_LINES:]:
            tell(line)


def _asked(words: Sequence[str]) -> subprocess.CompletedProcess[str] | None:
    """What one of SLURM's commands answers; None if it is not here, or does not answer."""
    try:
        return subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_PATIENCE_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
