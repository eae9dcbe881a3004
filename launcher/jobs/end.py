"""What the end of a job means, in the same way on every cluster, and how often it was requeued without progress."""

import contextlib
import enum
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from configs.process.files.inside import read_json, write_text
from configs.process.signals import STOPPED_BY_FILE
from launcher.agents.peers import LOST_NODE
from launcher.agents.root_cause import REFUSED
from trainer.runs.layout import REQUEUES_FILE, newest_step
from trainer.runs.status import Status

FINISHED = 0


class End(enum.Enum):
    """Why a job has ended."""

    FINISHED = "finished"
    """Exit code 0."""
    REFUSED = "refused"
    """Exit code 2: a new start would be refused too."""
    CANCELLED = "cancelled"
    """It was cancelled through the cluster."""
    STOPPED = "stopped"
    """Exit code 75 on a user's request."""
    INTERRUPTED = "interrupted"
    """A time limit or a preemption: exit code 75 after a complete save, or any code if it could not save."""
    LOST_NODE = "lost node"
    FAILED = "failed"
    """Exit code 1 or another: a new start would not help."""

    @property
    def goes_on(self) -> bool:
        """Whether the job should be started again, from the newest checkpoint."""
        return self in (End.INTERRUPTED, End.LOST_NODE)


@dataclass(kw_only=True, slots=True, frozen=True)
class Ending:
    """How a job has ended, and why in words."""

    end: End
    why: str


def ending_of(status: Status | None, code: int, *, signal: str = "none") -> Ending:
    """How a job has ended.

    Args:
        status: of the run at the end of this job; None if it wrote nothing.
        code: its exit code.
        signal: the first one that the cluster sent: USR1 (time limit or preemption), TERM (cancelled) or none.
    """
    if code == FINISHED:
        return Ending(end=End.FINISHED, why="finished")
    if code == REFUSED:
        return Ending(end=End.REFUSED, why="refused: the input is wrong")
    if signal == "TERM":
        return Ending(end=End.CANCELLED, why="cancelled")
    if status is not None and status.state == "finished":
        return Ending(end=End.FINISHED, why="finished")
    if status is not None and status.state == "stopped" and status.stop_reason == STOPPED_BY_FILE:
        return Ending(end=End.STOPPED, why="stopped by `zeromt stop`")
    if status is not None and status.state == "stopped":
        return Ending(end=End.INTERRUPTED, why="stopped after a complete save")
    if signal == "USR1":
        return Ending(end=End.INTERRUPTED, why="stopped before it could save")
    if status is not None and LOST_NODE in (status.error or ""):
        return Ending(end=End.LOST_NODE, why=status.error or "")
    return Ending(end=End.FAILED, why=f"failed with exit code {code}")


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


def write_requeues(folder: Path, requeues: Requeues) -> None:
    """Store the count, if the folder can be written."""
    with contextlib.suppress(OSError):
        write_text(folder / REQUEUES_FILE, json.dumps(asdict(requeues)) + "\n")
