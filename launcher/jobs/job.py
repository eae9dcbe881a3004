"""What a cluster is asked to run, and what it says of it."""

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from configs import UserError
from launcher.jobs.end import End

GONE, UNKNOWN = "GONE", "UNKNOWN"
_NODES = re.compile(r"([1-9][0-9]{0,5})(?:-([1-9][0-9]{0,5}))?")


@dataclass(kw_only=True, slots=True, frozen=True)
class Job:
    """A job of one run."""

    config: str
    overrides: tuple[str, ...]
    folder: str
    """From which it was launched, and in which it runs; absolute."""
    run: str
    """The run's folder, as the configuration has it."""
    logs: str
    """Folder of logs in the run's; absolute."""
    name: str
    """In the queue."""
    after: str | None = None
    """A job that must have succeeded, as the user named it."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment of the job, beside what the site's profile says."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Training(Job):
    """Training on one or several nodes."""

    nodes: str
    """A number, or MIN-MAX."""
    nproc: int | None
    """Processes on each node; None leaves it to the node."""
    max_restarts: int = 3
    """Of the ranks within the job."""
    fresh: bool = False
    """Whether the first node is to make way for it; where this machine sees the run's folder, that is done already."""
    parent: str | None = None
    """RUN[@step] whose weights a run without a checkpoint begins with."""
    slowest_save: float = 0.0
    """Seconds, of those that the run has made; 0 where there was none."""
    link: int = 1
    """Number in a chain, from 1."""
    num_links: int = 1

    def node_command(self, *, python: str = sys.executable, **options: object) -> list[str]:
        """What each node runs: `zeromt launch node`.

        Args:
            python: that has zeromt.
            options: of the command: `nnodes`, `rendezvous`, `job_id` and so on; one that is None is left out.
        """
        return [python, "-P", "-m", "launcher", "launch", "node", *self.node_arguments(**options)]

    def node_arguments(self, **options: object) -> list[str]:
        """The arguments of `node_command`, for what starts `launch node` in another way; options as there."""
        given = {"nproc": self.nproc, "max_restarts": self.max_restarts, "fresh": self.fresh, "from": self.parent}
        return node_arguments(self.config, self.overrides, {**given, **options})


@dataclass(kw_only=True, slots=True, frozen=True)
class Preparation(Job):
    """One part of the corpus for each task of an array; or the merge of the parts, which starts when all are done."""

    parts: int
    is_merge: bool = False

    def command(self, part: str, *, python: str = sys.executable) -> list[str]:
        """What runs: `zeromt prepare`.

        Args:
            part: number of the part, from 1, or what stands for it.
            python: that has zeromt.
        """
        which = ["--merge"] if self.is_merge else ["--part", f"{part}/{self.parts}"]
        return [python, "-P", "-m", "launcher", "prepare", self.config, *which, "--", *self.overrides]


@dataclass(kw_only=True, slots=True, frozen=True)
class JobState:
    """What a cluster says of a job."""

    id: str
    state: str
    """As SLURM's squeue calls it (PENDING, RUNNING, COMPLETING, ...); GONE: it is not in the queue any more; UNKNOWN:
    the cluster is not here, or does not answer."""
    reason: str | None = None
    """Why it waits."""
    time_left: str | None = None
    """To its time limit: days-hours:minutes:seconds."""
    end: End | None = None
    """Of a job that has ended, where the cluster still knows it."""

    @property
    def is_running(self) -> bool:
        """Whether it has nodes."""
        return self.state == "RUNNING"

    @property
    def is_waiting(self) -> bool:
        """Whether it has none yet."""
        return self.state == "PENDING"


def node_arguments(config: str, overrides: Sequence[str], options: dict[str, object]) -> list[str]:
    """The arguments of `launch node`.

    Args:
        config: a YAML file, or the name of an example run.
        overrides: `section.key=value` settings.
        options: of the command by their names; True is a switch, None and False are left out.
    """
    words = []
    for name, value in options.items():
        if value is not None and value is not False:
            words += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
    return [config, *words, "--", *overrides]


def check_nodes(text: str) -> str:
    """A number of nodes, or MIN-MAX.

    Raises:
        UserError: it is neither.
    """
    match = _NODES.fullmatch(text)
    if match is None or (match[2] is not None and int(match[2]) < int(match[1])):
        raise UserError(f"--nodes: {text!r}; allowed is a number from 1, or MIN-MAX such as 2-8")
    return text


def most_nodes(text: str) -> int:
    """The larger number of `check_nodes`."""
    return int(check_nodes(text).rpartition("-")[2])
