"""The profile of a cluster: what a batch job needs to know of it. Its YAML files lie in `configs/sites/`.

Every value ends up in a batch script, so each has a pattern: no control characters anywhere, and in what the scheduler
reads itself, no quotes or blanks either.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from configs import files
from configs.errors import UserError
from configs.fields import MOST, STRICT, Count, Home, Positive
from configs.load import parse_tree
from configs.reading.shipped import shipped
from configs.reading.tree import Tree

Word = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.,:@+=/-]{0,127}$")]
"""A name that SLURM knows: of a partition, an account and so on."""
Feature = Annotated[str, Field(pattern=r"^[A-Za-z0-9_\[(][A-Za-z0-9_.,:@+=*|&()\[\]-]{0,127}$")]
Text = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]+$", max_length=4096)]
"""Quoted for the shell, whatever it holds."""
Place = Annotated[Text, Home]
"""A file or folder of the cluster: quoted, so that no shell would expand `~`."""
Memory = Annotated[str, Field(pattern=r"^[0-9]+[KMGT]?$")]
Interface = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,14}(,[A-Za-z0-9][A-Za-z0-9._-]{0,14})*$")]
Port = Annotated[int, Field(ge=1024, le=45_535)]

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TIME = re.compile(r"(?:([0-9]+)-)?([0-9]+)(?::([0-9]+))?(?::([0-9]+))?")


@dataclass(kw_only=True, slots=True, frozen=True)
class SiteSection:
    """How jobs are submitted, and what a node has. `--set KEY=VALUE` replaces a field."""

    __pydantic_config__ = STRICT

    partition: Word | None = None
    account: Word | None = None
    qos: Word | None = None
    constraint: Feature | None = None
    reservation: Word | None = None
    time: Annotated[str, Field(max_length=32)] = "1-00:00:00"
    """Limit of a job: D-HH:MM:SS, HH:MM:SS, MM:SS or minutes, as SLURM writes it."""
    gpus_per_node: Count = 8
    """0: a cluster without GPUs."""
    gpu_request: Literal["gpus-per-node", "gres"] = "gpus-per-node"
    """How GPUs are asked for; older sites know --gres alone."""
    cpus_per_node: Positive | None = None
    """Cores that a job asks for on every node."""
    memory: Memory | None = None
    """Of every node, such as 480G; 0 takes all of it."""
    exclusive: bool = False
    """No other job on the same nodes."""
    requeue: bool = True
    """Whether jobs may be put back in the queue; where not, see --chain."""
    max_requeues: Count = 5
    """Times that a job is put back without a new checkpoint in between."""
    signal_lead: Annotated[int, Field(ge=1, le=65_535)] | None = None
    """Seconds between the warning and the time limit; None: three of the run's slowest saves, and at least 300."""
    modules: list[Text] = field(default_factory=list)
    """Loaded by `module load`, in this order."""
    source: list[Place] = field(default_factory=list)
    """Shell scripts that are sourced after that, such as /opt/venv/bin/activate."""
    environment: dict[str, Text] = field(default_factory=dict)
    """Variables that are set after that, such as NCCL_IB_HCA."""
    python: Place | None = None
    """The interpreter that has zeromt; None: that of the submission, and `python3` in a container."""
    container: Literal["none", "apptainer", "pyxis"] = "none"
    """What runs images: Apptainer, or SLURM's plugin pyxis."""
    container_image: Place | None = None
    container_mounts: list[Place] = field(default_factory=list)
    """SOURCE:TARGET; Apptainer's --bind, pyxis's --container-mounts."""
    interface: Interface | None = None
    """Network interface of gloo and NCCL."""
    port_base: Port = 20_000
    """The rendezvous takes this port plus the job's number modulo 20,000."""
    join_timeout: Positive = 300
    """Seconds within which all nodes must have come."""
    node_timeout: Annotated[int, Field(ge=3, le=MOST)] = 15
    """A node without a sign of life for so many seconds is lost."""

    def problems(self) -> Iterator[str]:
        """What is wrong with single values and between fields, one line each."""
        try:
            parse_time(self.time)
        except ValueError:
            yield f"time: {self.time!r}; allowed is D-HH:MM:SS, D-HH, HH:MM:SS, MM:SS or minutes, more than nothing"
        if (self.container == "none") != (self.container_image is None):
            yield (
                f"container_image: {self.container_image!r} with container={self.container}; "
                "allowed is an image with apptainer or pyxis, and none with none"
            )
        for name in self.environment:
            if not _VARIABLE.fullmatch(name):
                yield f"environment: {name!r}; allowed are names of variables: letters, digits and _"
        for mount in self.container_mounts:
            if "," in mount:
                yield f"container_mounts: {mount!r}; allowed is SOURCE:TARGET without a comma"


def parse_time(text: str) -> int:
    """Seconds of one of SLURM's ways to write a time.

    Raises:
        ValueError: it is none, or nothing is left.
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


def load_site(
    name: str | None, settings: Sequence[str] = (), changes: Mapping[str, object] | None = None
) -> SiteSection:
    """The profile of a site.

    Args:
        name: a YAML file, or the name of a shipped profile; None takes the defaults.
        settings: `key=value`, which replace fields. Values are read as YAML.
        changes: fields and their values, which replace them too.

    Raises:
        ConfigError: with every error that was found.
        UserError: there is no such file, or it cannot be read.
    """
    what = f"--site: {name}"
    site = Tree.read(_find(name), what=what) if name is not None else Tree.empty()
    for item in settings:
        if not re.match(r"[A-Za-z_][A-Za-z0-9_.\[\]]*=", item):
            raise UserError(f"--set: {item!r}; allowed is KEY=VALUE with a key of the site's profile")
        site.put(item, what="--set")
    tree = site.plain(what=what) | dict(changes or {})
    section: SiteSection = parse_tree(tree, SiteSection, site.texts)
    return section


def _find(name: str) -> Path:
    path = Path(name)
    with files.naming("--site"):
        if files.is_file(path):
            return path
    known = shipped("configs.sites")
    if name in known:
        return known[name]
    raise UserError(f"--site: no such file: {name!r}; allowed is a YAML file or one of {', '.join(known)}")
