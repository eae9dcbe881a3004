"""Decides from the run's files what a job does: `python -m launcher.clusters.slurm.decide begin|end RUN ...`.

It prints `go`, `refuse`, `requeue` or `end` for the script, and the reason on stderr. The batch script starts it on a
node of the job, where SLURM's environment identifies the job.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from configs import UserError
from configs.process.signals import STOPPED_BY_FILE
from configs.process.streams import tell
from launcher.agents.root_cause import REFUSED
from launcher.jobs.end import Requeues, ending_of, read_requeues, write_requeues
from trainer.runs.layout import LAUNCH_LOCK, STATUS_FILE
from trainer.runs.run_lock import RunLock
from trainer.runs.status import Status, read_status

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


def decide_end(status: Status | None, code: int, signal: str, requeues: Requeues, limit: int) -> tuple[str, str]:
    """Whether the job is requeued: `requeue` or `end`, and why.

    Args:
        status: of the run at the end of this job.
        code: exit code of the step on the nodes.
        signal: the first one that the batch script got: USR1, TERM or none.
        requeues: of this job, including this one.
        limit: of requeues without a new checkpoint.
    """
    ending = ending_of(status, code, signal=signal)
    if not ending.end.goes_on:
        return "end", ending.why
    if requeues.number > limit:
        return (
            "end",
            f"{ending.why}; not put back in the queue: no new checkpoint since step {requeues.step}, {limit} times",
        )
    return "requeue", f"{ending.why}; back in the queue"


def main(argv: Sequence[str]) -> int:
    """Decide, and say so."""
    parser = argparse.ArgumentParser(prog="python -m launcher.clusters.slurm.decide")
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
            arguments.code = REFUSED  # srun may have replaced it with the code of a process that it killed
        if status is not None and status.job_id != job:
            status = None  # this job's ranks had not begun, so the status is about another start
        requeues = read_requeues(arguments.run, job)
        decision, reason = decide_end(status, arguments.code, arguments.signal, requeues, arguments.max_requeues)
        if decision == "requeue":
            write_requeues(arguments.run, requeues)
    tell(f"zeromt: {reason}")
    print(decision)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
