"""Waits for jobs that note their exit codes themselves, so that it needs no accounting, and ends as they have."""

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path

from configs.process.files.inside import is_listed, read_text
from configs.process.streams import note, tell
from launcher.slurm.queue import GONE, find_job, list_jobs

_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 1.0, 30.0
"""Between two questions to SLURM, at first and after some time."""
_LINES = 8


def wait_for(jobs: Sequence[str], log: str) -> int:
    """Wait until the last of some jobs has ended, or all have left the queue; requeued ones are waited for.

    Args:
        jobs: each of which follows the one before.
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
