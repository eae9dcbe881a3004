"""Decides from the run's files what a job does next: `python -m launcher.slurm.decide RUN START ...`.

It prints `start`, `requeue`, `end` or `exit`, and the job's exit code, for the batch script, and the reason on stderr.
With `exit` SLURM ends the job, and may start it again. The script asks on a node of the job, before the first start of
the ranks and after each.
"""

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from configs import UserError
from configs.process.files.inside import is_listed, read_json, write_text
from configs.process.signals import ORPHANED, STOPPED, STOPPED_BY_FILE
from configs.process.streams import tell
from trainer.runs.layout import LAUNCH_LOCK, REQUEUES_FILE, STATUS_FILE, STOP_FILE, newest_step
from trainer.runs.run_lock import RunLock
from trainer.runs.status import EXIT_CODES, read_status

PATIENCE_SECONDS, PATIENCE_AFTER_A_REQUEUE = 5.0, 150.0
"""Seconds to wait for an earlier job that is ending, and for a lost node's lock, which NFS keeps for about a lease."""
START, REQUEUE, END, EXIT = "start", "requeue", "end", "exit"
REFUSED = EXIT_CODES["refused"]


class Decision(NamedTuple):
    """What a job does next."""

    action: str
    code: int
    """The job's exit code where it ends."""
    why: str


def decide_first(run: Path, *, link: int) -> Decision:
    """What a job begins with.

    Args:
        run: its folder.
        link: number of the job in a chain, from 1; a later one begins only if there is something left to do.
    """
    status = read_status(run / STATUS_FILE) if link > 1 else None
    if status is not None and status.refused_job is not None:  # a refused start by hand does not end a chain
        return Decision(END, REFUSED, f"the run was refused: {status.refusal}")
    if status is not None and (status.is_over or status.state == "refused"):
        return Decision(END, status.exit_code, f"the run is {status.state}")
    lock = RunLock(run, LAUNCH_LOCK)
    try:
        if run.is_dir():
            is_again = int(os.environ.get("SLURM_RESTART_COUNT") or 0) > 0
            lock.acquire(PATIENCE_AFTER_A_REQUEUE if is_again else PATIENCE_SECONDS)
    except UserError as error:
        return Decision(END, REFUSED, f"error: {error}")
    finally:
        lock.release()
    return Decision(START, 0, "the run is free")


def decide_next(run: Path, start: str, *, code: int, signal: str) -> Decision:
    """What follows when the ranks have ended, however often that was tried.

    Args:
        run: its folder.
        start: the id of the start that has ended.
        code: srun's exit code; one node's refusal to start is in it alone.
        signal: the first that the batch script got: USR1, TERM or none.
    """
    status = read_status(run / STATUS_FILE, start)
    if status is None:
        state = "refused" if code == REFUSED else "lost before the ranks began"
    else:
        state = "failed" if status.state == "running" or status.stop_reason == ORPHANED else status.state
    if state in ("finished", "refused"):
        return Decision(END, EXIT_CODES[state], state)
    is_saved = status is not None and state == "stopped"
    code = STOPPED if is_saved else 1
    if status is not None and status.stop_reason == STOPPED_BY_FILE:
        return Decision(END, code, "stopped by `zeromt stop`")
    if signal == "TERM":
        return Decision(EXIT, code, f"{state}: cancelled, or taken back by SLURM")
    if is_listed(run / STOP_FILE):
        (run / STOP_FILE).unlink(missing_ok=True)
        return Decision(END, code, f"{state}, and a file STOP asks to stop")
    if is_saved or status is None or signal == "USR1":  # none began on a node that does not answer
        return Decision(REQUEUE, code, "stopped after a complete save" if is_saved else state)
    return Decision(START, code, f"failed: {status.error or 'the ranks were killed'}")


def limited(decision: Decision, run: Path, limits: Mapping[str, int]) -> Decision:
    """The decision, or an end where it was taken too often without a new checkpoint.

    Args:
        decision: what would be done.
        run: its folder.
        limits: of `restarts` in an allocation, and of `requeues`.
    """
    if decision.action not in (START, REQUEUE):
        return decision
    kind, what = ("restarts", "started again") if decision.action == START else ("requeues", "back in the queue")
    tries = read_tries(run, os.environ.get("SLURM_JOB_ID", ""))
    number, most = tries[kind] + 1, limits[kind]
    if number > most:
        why = f"{decision.why}; not {what}: no new checkpoint since step {tries['step']}, {most} times"
        return Decision(END, decision.code, why)
    write_text(run / REQUEUES_FILE, json.dumps({**tries, "restarts": 0, kind: number}) + "\n")
    why = f"{decision.why}; {what}, {number} of {most} since step {tries['step']}"
    return Decision(decision.action, decision.code, why)


def read_tries(run: Path, job: str) -> dict[str, Any]:
    """What this job has tried; nothing if there is a new checkpoint, or the record is of another job."""
    tries = {"job": job, "step": newest_step(run), "restarts": 0, "requeues": 0}
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        before = read_json(run / REQUEUES_FILE)
        if (before["job"], before["step"]) == (tries["job"], tries["step"]):
            tries |= {kind: int(before[kind]) for kind in ("restarts", "requeues")}
    return tries


def main(argv: Sequence[str]) -> int:
    """Decide, and say so."""
    parser = argparse.ArgumentParser(prog="python -m launcher.slurm.decide")
    parser.add_argument("run", type=Path)
    parser.add_argument("start", help="the id of the start that has ended; none before the first")
    parser.add_argument("--code", type=int, default=0)
    parser.add_argument("--signal", choices=("none", "USR1", "TERM"), default="none")
    parser.add_argument("--link", type=int, default=1)
    parser.add_argument("--max-restarts", type=int, default=0)
    parser.add_argument("--max-requeues", type=int, default=0)
    given = parser.parse_args(argv)
    if given.start == "none":
        decision = decide_first(given.run, link=given.link)
    else:
        decision = decide_next(given.run, given.start, code=given.code, signal=given.signal)
        decision = limited(decision, given.run, {"restarts": given.max_restarts, "requeues": given.max_requeues})
    tell(f"zeromt: {decision.why}")
    print(decision.action, decision.code)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
