"""What is submitted: a training, a command in parts, or one command."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(kw_only=True, slots=True, frozen=True)
class Job:
    """A job of one run."""

    folder: str
    """The folder from which it is launched and in which it runs; absolute."""
    name: str
    """In the queue."""
    after: int | None = None
    """A job that must succeed first."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment of the job, in addition to the site profile's."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Training(Job):
    """Training on one or several nodes."""

    run: str
    """The run's folder, as in the configuration."""
    config: str
    overrides: tuple[str, ...]
    nodes: str
    """A number, or MIN-MAX."""
    nproc: int | None
    """Processes on each node; None leaves it to the node."""
    max_restarts: int = 3
    """Restarts of the ranks within the job."""
    parent: str | None = None
    """RUN[@step] with the initial weights of a run without a checkpoint."""
    slowest_save: float = 0.0
    """Seconds of the run's slowest save so far; 0 if there was none."""
    link: int = 1
    """Number in a chain, from 1."""
    num_links: int = 1


@dataclass(kw_only=True, slots=True, frozen=True)
class Array(Job):
    """One part of a command for each task of an array; or the merge of the parts, which starts when all are done."""

    words: tuple[str, ...]
    """The command: its name, then its arguments."""
    parts: int
    is_merge: bool = False

    @property
    def takes_gpus(self) -> bool:
        """Whether it computes by models, where GPUs are: parts that translate or score, not those of a preparation."""
        return self.words[0] != "prepare" and not self.is_merge


@dataclass(kw_only=True, slots=True, frozen=True)
class Single(Job):
    """One command, run once."""

    words: tuple[str, ...]
    """The command; the word `zeromt` in front is this Python's."""
    stdout: str = ""
    """A file that gets what it prints; empty: the job's output."""
