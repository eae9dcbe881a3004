"""What a step runs, and where."""

import contextlib
import fcntl
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from configs.process.files import inside
from zeromt.pipeline.recipe import Pipeline
from zeromt.pipeline.records import RECORDS


@dataclass(kw_only=True, slots=True)
class Work:
    """A step that is to run."""

    commands: Sequence[Sequence[str]]
    """One after the other, until one fails."""
    log: Path
    lock: Path
    """Held while it runs, or is waited for."""
    stdout: Path | None
    """What the commands print; None: with the log."""


class Runner(Protocol):
    """A place where steps run; its methods are called from several threads."""

    at_once: int
    """Most steps that run at a time."""

    def work(self, pipeline: Pipeline, name: str, job: str) -> Work:
        """The work of a step.

        Args:
            pipeline: with the step.
            name: of the step.
            job: the name of its jobs on a cluster; a try that goes on under another driver keeps it.
        """

    def left(self, job: str, lock: Path) -> Sequence[str]:
        """Jobs of a try that an earlier driver began, and that still run; on this machine they are waited for."""

    def run(self, work: Work) -> int:
        """Run a step to its end.

        Returns:
            Its exit code; 75 if it was asked to stop.
        """


def work_of(pipeline: Pipeline, name: str, commands: Sequence[Sequence[str]], stdout: str | None) -> Work:
    """The work of a step that runs these commands."""
    records = pipeline.folder / RECORDS
    return Work(
        commands=commands,
        log=records / f"{name}.log",
        lock=records / f"{name}.lock",
        stdout=None if stdout is None else Path(stdout),
    )


@contextlib.contextmanager
def held(lock: Path) -> Iterator[None]:
    """Hold a step's lock, once what an earlier driver began has let it go."""
    with inside.opened(lock, "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
