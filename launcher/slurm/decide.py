"""Decides from the run's files what a job does: `python -m launcher.slurm.decide begin|end RUN ...`.

It prints `go`, `refuse`, `requeue` or `end` for the script, and the reason on stderr. The batch script starts it on a
node of the job, where SLURM's environment identifies the job.
"""

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from configs import UserError
from configs.process.files.inside import read_json, write_text
from configs.process.signals import STOPPED_BY_FILE
from configs.process.streams import tell
from trainer.runs.layout import LAUNCH_LOCK, REQUEUES_FILE, STATUS_FILE, newest_step
from trainer.runs.run_lock import RunLock
from trainer.runs.status import EXIT_CODES, Status, read_status

REFUSED = EXIT_CODES["refused"]
PATIENCE_SECONDS, PATIENCE_AFTER_A_REQUEUE = 5.0, 150.0
"""Seconds to wait for an earlier job that is ending, and for a lost node's lock, which NFS keeps for about a lease."""


def decide_begin(status: Status | None) -> tuple[str, str]:
    """Whether a later job of a chain has work to do: `go` or `end`, and why."""
    if status is None:
        return "go", "nothing is there yet"
    if status.state == "finished":
        return "end", "the run is finished"
    if status.state == "refused":
        return "end", f"the run was refused: {status.error}"
    if status.refused_job is not None:  # a refused start by hand does not belong to the chain
        return "end", f"the run was refused: {status.refusal}"
    if status.state == "stopped" and status.stop_reason == STOPPED_BY_FILE:
        return "end", "the run was stopped by `zeromt stop`"
    return "go", f"the run's state is {status.state}"


def read_refusal(run: Path) -> str | None:
    """Why this job must not write the run; None if it may."""
    lock = RunLock(run, LAUNCH_LOCK)
    try:
        if run.is_dir():
            is_again = int(os.environ.get("SLURM_RESTART_COUNT") or 0) > 0
            lock.acquire(PATIENCE_AFTER_A_REQUEUE if is_again else PATIENCE_SECONDS)
    except UserError as error:
        return str(error)
    finally:
        lock.release()
    return None


@dataclass(kw_only=True, slots=True, frozen=True)
class Requeues:
    """How often a job was requeued since its newest checkpoint."""

    job: str = ""
    step: int = 0
    """Step of the newest checkpoint at the last requeue."""
    number: int = 0


def read_requeues(folder: Path, job: str) -> Requeues:
    """Requeues of this job, including the next; 1 if there is a new checkpoint, or the record is of another job."""
    step = newest_step(folder)
    try:
        before = Requeues(**read_json(folder / REQUEUES_FILE))
    except (OSError, ValueError, TypeError):
        before = Requeues()
    if before.job != job or step > before.step:
        return Requeues(job=job, step=step, number=1)
    return Requeues(job=job, step=before.step, number=before.number + 1)


def decide_end(status: Status | None, code: int, signal: str, requeues: Requeues, limit: int) -> tuple[str, str]:
    """Whether the job is requeued: `requeue` or `end`, and why.

    Args:
        status: of the run at the end of this job.
        code: exit code of the step on the nodes.
        signal: the first one that the batch script got: USR1, TERM or none.
        requeues: of this job, including this one.
        limit: of requeues without a new checkpoint.
    """
    goes_on, why = _ending(status, code, signal)
    if not goes_on:
        return "end", why
    if requeues.number > limit:
        return "end", f"{why}; not put back in the queue: no new checkpoint since step {requeues.step}, {limit} times"
    return "requeue", f"{why}; back in the queue"


def _ending(status: Status | None, code: int, signal: str) -> tuple[bool, str]:
    """Whether another start would go on from the newest checkpoint, and how the job has ended."""
    if code == 0:
        return False, "finished"
    if code == REFUSED:
        return False, "refused: the input is wrong"
    if signal == "TERM":
        return False, "cancelled"
    if status is not None and status.state == "finished":  # killed on its way out
        return False, "finished"
    if status is not None and status.state == "stopped":
        if status.stop_reason == STOPPED_BY_FILE:
            return False, "stopped by `zeromt stop`"
        return True, "stopped after a complete save"
    if signal == "USR1":
        return True, "stopped before it could save"
    return False, f"failed with exit code {code}"


def main(argv: Sequence[str]) -> int:
    """Decide, and say so."""
    parser = argparse.ArgumentParser(prog="python -m launcher.slurm.decide")
    parser.add_argument("when", choices=("begin", "end"))
    parser.add_argument("run", type=Path)
    parser.add_argument("--link", type=int, default=1)
    parser.add_argument("--code", type=int, default=0)
    parser.add_argument("--signal", choices=("none", "USR1", "TERM"), default="none")
    parser.add_argument("--max-requeues", type=int, default=0)
    arguments = parser.parse_args(argv)
    status = read_status(arguments.run / STATUS_FILE)
    if arguments.when == "begin":
        refusal = read_refusal(arguments.run)
        if refusal is not None:
            decision, reason = "refuse", f"error: {refusal}"
        else:
            decision, reason = decide_begin(status) if arguments.link > 1 else ("go", "the run is free")
    else:
        job = os.environ.get("SLURM_JOB_ID", "")
        if status is not None and status.refused_job is not None and status.refused_job == job:
            arguments.code = REFUSED
        if status is not None and status.job_id != job:
            status = None  # this job's ranks had not begun, so the status is about another start
        requeues = read_requeues(arguments.run, job)
        decision, reason = decide_end(status, arguments.code, arguments.signal, requeues, arguments.max_requeues)
        if decision == "requeue":
            with contextlib.suppress(OSError):  # the folder cannot be written
                write_text(arguments.run / REQUEUES_FILE, json.dumps(asdict(requeues)) + "\n")
    tell(f"zeromt: {reason}")
    print(decision)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
