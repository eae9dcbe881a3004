"""A cluster's jobs, and their states."""

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from configs import Plugin, UserError, load_run
from launcher.jobs.end import End
from launcher.options.command import InParts

GONE, UNKNOWN = "GONE", "UNKNOWN"
_NODES = re.compile(r"([1-9][0-9]{0,5})(?:-([1-9][0-9]{0,5}))?")


@dataclass(kw_only=True, slots=True, frozen=True)
class Job:
    """A job of one run."""

    folder: str
    """The folder from which it is launched and in which it runs; absolute."""
    run: str
    """The run's folder, as in the configuration."""
    logs: str
    """The run's folder of logs; absolute."""
    name: str
    """In the queue."""
    after: str | None = None
    """A job that must succeed first, as the user named it."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment of the job, in addition to the site profile's."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Training(Job):
    """Training on one or several nodes."""

    config: str
    overrides: tuple[str, ...]
    nodes: str
    """A number, or MIN-MAX."""
    nproc: int | None
    """Processes on each node; None leaves it to the node."""
    max_restarts: int = 3
    """Restarts of the ranks within the job."""
    fresh: bool = False
    """Whether the first node must rename an existing run; done already if this machine sees the run's folder."""
    parent: str | None = None
    """RUN[@step] with the initial weights of a run without a checkpoint."""
    slowest_save: float = 0.0
    """Seconds of the run's slowest save so far; 0 if there was none."""
    link: int = 1
    """Number in a chain, from 1."""
    num_links: int = 1

    def node_command(self, *, python: str = sys.executable, **options: object) -> list[str]:
        """The command of each node: `zeromt launch node`.

        Args:
            python: the interpreter that has zeromt.
            options: of the command: `nnodes`, `rendezvous`, `job_id` and so on; None omits an option.
        """
        return [python, "-P", "-m", "zeromt", "launch", "node", *self.node_arguments(**options)]

    def node_arguments(self, **options: object) -> list[str]:
        """The arguments of `node_command`, to start `launch node` in another way; for the options see there."""
        given = {"nproc": self.nproc, "max_restarts": self.max_restarts, "fresh": self.fresh, "from": self.parent}
        return node_arguments(self.config, self.overrides, {**given, **options})


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

    def command(self, part: str, *, python: str = sys.executable) -> list[str]:
        """The command of a task, or of the merge.

        Args:
            part: number of the part, from 1, or a placeholder.
            python: the interpreter that has zeromt.
        """
        return command_of(self.words, None if self.is_merge else f"{part}/{self.parts}", python=python)


@dataclass(kw_only=True, slots=True, frozen=True)
class Single(Job):
    """One command, run once."""

    words: tuple[str, ...]
    """The command; the word `zeromt` in front is the cluster's."""
    stdout: str = ""
    """A file that gets what it prints; empty: the job's output."""


@dataclass(kw_only=True, slots=True, frozen=True)
class JobState:
    """The state of a job on a cluster."""

    id: str
    state: str
    """As SLURM's squeue calls it (PENDING, RUNNING, COMPLETING, ...); GONE: it is not in the queue any more; UNKNOWN:
    the cluster is not here, or does not answer."""
    reason: str | None = None
    """Why it waits."""
    time_left: str | None = None
    """Time left to its limit: days-hours:minutes:seconds."""
    end: End | None = None
    """Exit code of an ended job, if the cluster still knows it."""

    @property
    def is_running(self) -> bool:
        """Whether it has been given nodes."""
        return self.state == "RUNNING"

    @property
    def is_waiting(self) -> bool:
        """Whether it still waits for nodes."""
        return self.state == "PENDING"


class Place(NamedTuple):
    """What a job needs to know of a run, or of a folder that an array fills."""

    folder: str
    name: str
    plugins: Sequence[Plugin] = ()

    @classmethod
    def of(cls, array: InParts | None, config: str, overrides: Sequence[str], plugins: Sequence[str]) -> "Place":
        """The place of a run, whose configuration is read, or of an array of a command that has none.

        Raises:
            UserError: the configuration is wrong.
        """
        if array is not None and array.folder is not None:
            return cls(array.folder, Path(array.folder).absolute().name)
        run = load_run(config, overrides, plugins=plugins)
        return cls(run.folder, run.name, run.plugins)


def command_of(words: Sequence[str], part: str | None, *, python: str = sys.executable) -> list[str]:
    """The command line of one task of an array.

    Args:
        words: the command that runs in parts: its name, then its arguments.
        part: I/N; None for the merge of the parts.
        python: the interpreter that has zeromt.
    """
    return [python, "-P", "-m", "zeromt", words[0], *(["--merge"] if part is None else ["--part", part]), *words[1:]]


def node_arguments(config: str, overrides: Sequence[str], options: dict[str, object]) -> list[str]:
    """The arguments of `launch node`.

    Args:
        config: a YAML file, or the name of an example run.
        overrides: `section.key=value` settings.
        options: of the command by name; True is a switch, None and False omit an option.
    """
    words = []
    for name, value in options.items():
        if value is not None and value is not False:
            words += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
    return [config, *words, "--", *overrides]


def check_nodes(text: str) -> str:
    """Check a number of nodes, or MIN-MAX.

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
