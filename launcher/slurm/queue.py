"""Asks SLURM: sbatch, with a warning before the time limit, squeue, scontrol and scancel."""

import math
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from configs import UserError
from launcher.slurm.profile import Profile, format_time, parse_time

GONE, UNKNOWN = "GONE", "UNKNOWN"
JOB_ID = re.compile(r"\d+(_\d+)?")
_SHORTEST_LEAD, _LONGEST_LEAD, _SAVES_IN_THE_LEAD = 300, 65_535, 3
"""Seconds; the longest lead that sbatch accepts."""
_SBATCH_SECONDS = 120
_PATIENCE_SECONDS = 10


def choose_lead(profile: Profile, save_seconds: float) -> int:
    """Seconds between the warning and the time limit.

    Args:
        profile: its `signal_lead` is used if it is set.
        save_seconds: of the slowest save measured; 0 if none was.

    Raises:
        UserError: the time limit leaves no time to train, or the lead no time to save.
    """
    limit = parse_time(profile.time)
    lead = profile.signal_lead or max(_SHORTEST_LEAD, min(math.ceil(_SAVES_IN_THE_LEAD * save_seconds), _LONGEST_LEAD))
    if lead <= save_seconds:
        raise UserError(
            f"signal_lead: {lead} is less than the run's slowest save took, {save_seconds:.0f} s; give more"
        )
    if limit < lead + save_seconds:
        raise UserError(
            f"--time: {format_time(limit)} is less than signal_lead={lead} and a save of {save_seconds:.0f} s; "
            f"allowed is {format_time(lead + math.ceil(save_seconds))} or more"
        )
    return lead


def sbatch(script: str, *options: str) -> str:
    """Run sbatch with a script on its stdin; returns the job's number, or "" for a test.

    Raises:
        UserError: it is missing, or refuses.
    """
    try:
        done = subprocess.run(
            ["sbatch", *options],
            input=script,
            env=submission_environment(os.environ),
            capture_output=True,
            text=True,
            timeout=_SBATCH_SECONDS,
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
    number = done.stdout.strip().partition(";")[0]
    if "--parsable" in options and not re.fullmatch(r"[0-9]+", number):
        raise UserError(f"sbatch: {number!r} is no job's number; use SLURM's own sbatch")
    return number


def submission_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment for sbatch, without variables of a surrounding allocation, which the job would inherit."""
    return {name: value for name, value in environ.items() if not name.startswith("SLURM_") or name == "SLURM_CONF"}


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
    asked = _asked(["scontrol", "show", "job", job_id]) if JOB_ID.fullmatch(job_id) else None
    if asked is None:
        return False
    lines = [line.strip() for line in asked.stdout.partition("\n\n")[0].splitlines()]  # of an array, the first task
    is_mine = any(re.match(rf"UserId=[^ ]*\({os.getuid()}\) ", line) for line in lines)
    outputs = [Path(line.removeprefix("StdOut=")) for line in lines if line.startswith("StdOut=/")]
    return is_mine and any(output.parent.resolve() == logs.resolve() for output in outputs)


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


def _asked(words: Sequence[str]) -> subprocess.CompletedProcess[str] | None:
    """What one of SLURM's commands answers; None if it is not here, or does not answer."""
    try:
        return subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_PATIENCE_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
