"""Interprets the end of a job from its status and exit code, in the same way on every cluster."""

import enum
from dataclasses import dataclass

from configs.process.signals import STOPPED_BY_FILE
from launcher.agents.peers import LOST_NODE
from launcher.agents.root_cause import REFUSED
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
