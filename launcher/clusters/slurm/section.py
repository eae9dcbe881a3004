"""The settings of a SLURM cluster, and times as SLURM writes them."""

import dataclasses
import re
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from configs.fields import Count, Positive
from launcher.jobs import BatchCluster
from launcher.jobs.fields import Interface, LossSeconds, Place, Port, Text, variable_problems

_TIME = re.compile(r"(?:([0-9]+)-)?([0-9]+)(?::([0-9]+))?(?::([0-9]+))?")


def parse_time(text: str) -> int:
    """Parse a time in one of SLURM's formats; returns seconds.

    Raises:
        ValueError: it is not valid, or zero.
    """
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError(text)
    parts = [int(part) for part in match.groups()[1:] if part is not None]
    if match[1] is not None:
        hours, minutes, seconds = [*parts, 0, 0][:3]
    elif len(parts) == 3:
        hours, minutes, seconds = parts
    else:
        hours, (minutes, seconds) = 0, [*parts, 0][:2]
    total = ((int(match[1] or 0) * 24 + hours) * 60 + minutes) * 60 + seconds
    if total <= 0:
        raise ValueError(text)
    return total


def format_time(seconds: int) -> str:
    """D-HH:MM:SS."""
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"{days}-{hours:02}:{minutes:02}:{seconds:02}"


Word = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.,:@+=/-]{0,127}$")]
"""A name in SLURM, of a partition, an account and so on. The scheduler reads it itself: no quotes or blanks."""
Feature = Annotated[str, Field(pattern=r"^[A-Za-z0-9_\[(][A-Za-z0-9_.,:@+=*|&()\[\]-]{0,127}$")]
Hosts = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9.,\[\]_-]{0,1023}$")]
"""Names of nodes as SLURM writes them, such as gpu[01-04,07]."""
Model = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$")]
Address = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+@-]{0,253}$")]
Memory = Annotated[str, Field(pattern=r"^[0-9]+[KMGT]?$")]

Mail = Literal[
    "ALL", "BEGIN", "END", "FAIL", "REQUEUE", "INVALID_DEPEND", "TIME_LIMIT", "TIME_LIMIT_90", "TIME_LIMIT_80",
    "TIME_LIMIT_50", "ARRAY_TASKS"
]  # fmt: skip


@dataclasses.dataclass(kw_only=True, frozen=True)
class SlurmSection(BatchCluster):
    """How jobs are submitted, and what a node has."""

    partition: Word | None = None
    account: Word | None = None
    qos: Word | None = None
    constraint: Feature | None = None
    reservation: Word | None = None
    nodelist: Hosts | None = None
    """Nodes that every training must get; the tasks of an array run anywhere."""
    exclude: Hosts | None = None
    """Nodes that no job may get."""
    licenses: Word | None = None
    """Licences that a job holds, such as scratch:2."""
    mail_user: Address | None = None
    """To whom SLURM writes; None: whoever submits."""
    mail_type: list[Mail] = dataclasses.field(default_factory=list)
    """When it writes; an empty list: never."""
    time: Annotated[str, Field(max_length=32)] = "1-00:00:00"
    """Time limit of a job: D-HH:MM:SS, HH:MM:SS, MM:SS or minutes, as in SLURM."""
    gpus_per_node: Count = 8
    """0 for a cluster without GPUs."""
    gpu_request: Literal["gpus-per-node", "gres"] = "gpus-per-node"
    """The option that requests GPUs; older sites only have --gres."""
    gpu_type: Model | None = None
    """Which GPUs, such as h100, where the cluster has several; None: any."""
    cpus_per_node: Positive | None = None
    """Cores requested on every node."""
    memory: Memory | None = None
    """Memory of every node, such as 480G; 0 takes all."""
    exclusive: bool = False
    """Whether no other job may run on the same nodes."""
    requeue: bool = True
    """Whether jobs may be requeued; if not, see --chain."""
    max_requeues: Count = 5
    """Requeues without a new checkpoint before the job gives up."""
    signal_lead: Annotated[int, Field(ge=1, le=65_535)] | None = None
    """Seconds between the warning and the time limit; None: three times the run's slowest save, at least 300."""
    modules: list[Text] = dataclasses.field(default_factory=list)
    """Modules for `module load`, in this order."""
    source: list[Place] = dataclasses.field(default_factory=list)
    """Shell scripts that are then sourced, such as /opt/venv/bin/activate."""
    environment: dict[str, Text] = dataclasses.field(default_factory=dict)
    """Environment variables that are then set, such as NCCL_IB_HCA."""
    python: Place | None = None
    """The interpreter that has zeromt; None: that of the submission, and `python3` in a container."""
    container: Literal["none", "apptainer", "pyxis"] = "none"
    """What runs container images: Apptainer, or SLURM's plugin pyxis."""
    container_image: Place | None = None
    container_mounts: list[Place] = dataclasses.field(default_factory=list)
    """SOURCE:TARGET, for Apptainer's --bind or pyxis's --container-mounts."""
    interface: Interface | None = None
    """Network interface for gloo and NCCL."""
    port_base: Port = 20_000
    """The rendezvous uses this port plus the job's number modulo 20,000."""
    join_timeout: Positive = 300
    """Seconds within which all nodes must have joined."""
    node_timeout: LossSeconds = 15
    """Seconds of silence after which a node is lost."""

    def problems(self) -> Iterator[str]:
        """Errors in single values and between fields, one line each."""
        try:
            parse_time(self.time)
        except ValueError:
            yield f"time: {self.time!r}; allowed is D-HH:MM:SS, D-HH, HH:MM:SS, MM:SS or minutes, more than nothing"
        if (self.container == "none") != (self.container_image is None):
            yield (
                f"container_image: {self.container_image!r} with container={self.container}; "
                "allowed is an image with apptainer or pyxis, and none with none"
            )
        if self.mail_user is not None and not self.mail_type:
            yield f"mail_user: {self.mail_user!r} without mail_type, and SLURM would never write; give one, as [FAIL]"
        yield from variable_problems("environment", self.environment)
        for mount in self.container_mounts:
            if "," in mount:
                yield f"container_mounts: {mount!r}; allowed is SOURCE:TARGET without a comma"
