"""What a step runs, for the place where it runs."""

import contextlib
import fcntl
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from configs.process.files import inside
from zeromt.pipeline.recipe import Pipeline
from zeromt.pipeline.records import RECORDS


@dataclass(kw_only=True, slots=True)
class Work:
    """A step that is to run."""

    name: str
    words: list[str]
    """The command, zeromt's by `launch` where it can be on several machines or in parts."""
    is_zeromt: bool
    log: Path
    lock: Path
    """Held while it runs on this machine."""
    stdout: Path | None
    """What the command prints; None: with the log."""
    job: str
    """The name of its jobs on a cluster; a try that goes on under another driver keeps it."""
    options: list[str]
    """Those of `zeromt launch`, for a cluster's profile."""
    note_jobs: Callable[[list[str]], None] = lambda jobs: None
    """Keeps the jobs that were sent, for people."""


class Runner(Protocol):
    """A place where steps run; its methods are called from several threads."""

    at_once: int
    """Most steps that run at a time."""

    def launcher(self, job: str) -> Sequence[str]:
        """The words behind `zeromt launch` for runs and arrays: the kind, then options.

        Args:
            job: the job's name.
        """

    def left(self, job: str, lock: Path) -> Sequence[str]:
        """Jobs of a try that an earlier driver began, and that still run; on this machine they are waited for."""

    def run(self, work: Work) -> int:
        """Run a step to its end.

        Returns:
            Its exit code; 75 if it was asked to stop.
        """


def work_of(pipeline: Pipeline, name: str, launcher: Sequence[str], *, job: str) -> Work:
    """The work of a step.

    Args:
        pipeline: with the step.
        name: of the step.
        launcher: the words behind `zeromt launch`.
        job: the name of its jobs on a cluster.
    """
    step, records = pipeline.steps[name], pipeline.folder / RECORDS
    return Work(
        name=name,
        words=_launched(pipeline, name, launcher),
        is_zeromt=step.is_zeromt(),
        log=records / f"{name}.log",
        lock=records / f"{name}.lock",
        stdout=None if step.stdout is None else Path(pipeline.filled(step.stdout, name)),
        job=job,
        options=[*launcher[1:], *shlex.split(step.launch)],
    )


def _launched(pipeline: Pipeline, name: str, launcher: Sequence[str]) -> list[str]:
    step, words = pipeline.steps[name], pipeline.words(name)
    options = shlex.split(step.launch)
    if step.is_zeromt("train"):
        return ["zeromt", "launch", launcher[0], words[2], *launcher[1:], *options, *words[3:]]
    if step.parts is not None:
        array = ["--array", str(step.parts), "--", *words[1:]]
        return ["zeromt", "launch", *launcher, *options, *array]
    return words


@contextlib.contextmanager
def held(lock: Path) -> Iterator[int]:
    """Hold a step's lock, once what an earlier driver began has let it go; yields the file."""
    with inside.opened(lock, "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()
