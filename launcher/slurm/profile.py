"""The profile of a site: what its SLURM wants, and what a node has. Examples are in `configs/sites/`.

Every value ends up in a script, so each has a pattern, or is quoted for the shell.
"""

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import ConfigDict, Field

from configs.errors import UserError
from configs.fields import MAX_INTEGER, STRICT, Count, Home, Positive
from configs.load import parse_tree
from configs.process import files
from configs.reading.own_files import other_kind
from configs.reading.passwords import HIDDEN
from configs.reading.shipped import no_yaml, shipped
from configs.reading.tree import Tree

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


Text = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]+$", max_length=4096)]
"""Any text; it is quoted for the shell."""
Place = Annotated[Text, Home]
"""A file or folder; it is quoted, so that a shell does not expand `~`."""
Word = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.,:@+=/-]{0,127}$")]
"""A name in SLURM, of a partition, an account and so on. The scheduler reads it itself: no quotes or blanks."""
Feature = Annotated[str, Field(pattern=r"^[A-Za-z0-9_\[(][A-Za-z0-9_.,:@+=*|&()\[\]-]{0,127}$")]
Hosts = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9.,\[\]_-]{0,1023}$")]
"""Names of nodes as SLURM writes them, such as gpu[01-04,07]."""
Model = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$")]
Address = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+@-]{0,253}$")]
Memory = Annotated[str, Field(pattern=r"^[0-9]+[KMGT]?$")]

Interface = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,14}(,[A-Za-z0-9][A-Za-z0-9._-]{0,14})*$")]
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLAIN = re.compile(r"(NCCL|GLOO|UCX|FI|OMP|KMP|MKL|CUDA|TORCH|PYTORCH)_\w+")
"""Variables that are settings of a library, and so no secrets."""

Mail = Literal[
    "ALL", "BEGIN", "END", "FAIL", "REQUEUE", "INVALID_DEPEND", "TIME_LIMIT", "TIME_LIMIT_90", "TIME_LIMIT_80",
    "TIME_LIMIT_50", "ARRAY_TASKS"
]  # fmt: skip


@dataclasses.dataclass(kw_only=True, frozen=True)
class Profile:
    """How jobs are submitted, and what a node has."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

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
    port_base: Annotated[int, Field(ge=1024, le=45_535)] = 20_000
    """The rendezvous uses this port plus the job's number modulo 20,000."""
    join_timeout: Positive = 300
    """Seconds within which all nodes must have joined."""
    node_timeout: Annotated[int, Field(ge=3, le=MAX_INTEGER)] = 15
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
        for name in self.environment:
            if not _VARIABLE.fullmatch(name):
                yield f"environment: {name!r}; allowed are names of variables: letters, digits and _"
        for mount in self.container_mounts:
            if "," in mount:
                yield f"container_mounts: {mount!r}; allowed is SOURCE:TARGET without a comma"

    def without_values(self) -> Self:
        """The profile with `***` for each value of its `environment` that may be a secret."""
        shown = {name: text if _PLAIN.fullmatch(name) else HIDDEN for name, text in self.environment.items()}
        return dataclasses.replace(self, environment=shown)


def load_profile(
    name: str | None = None, settings: Sequence[str] = (), changes: Mapping[str, object] | None = None
) -> Profile:
    """Read the profile of a site.

    Args:
        name: a YAML file, or the name of a shipped profile; None uses the defaults.
        settings: `key=value`, which replace fields. Values are read as YAML.
        changes: values by field, which replace those too.

    Raises:
        ConfigError: the profile has errors; the message has a line for each.
        UserError: the file does not exist or cannot be read, or is of another kind.
    """
    what = f"--site: {name}"
    tree = Tree.empty() if name is None else Tree.read(_find(name), what=what)
    for item in settings:
        tree.put(item, what="--set")
    plain = tree.plain(what=what)
    if (said := other_kind(plain, "site", str(name))) is not None:
        raise UserError(f"{what}: {said}")
    profile: Profile = parse_tree({**plain, **(changes or {})}, Profile, tree.texts)
    return profile


def _find(name: str) -> Path:
    path = Path(name)
    with files.naming("--site"):
        if files.is_file(path):
            return path
    known = shipped("configs.sites")
    if name in known:
        return known[name]
    raise no_yaml("--site", name, known)
