"""The profile of a site: what its sbatch wants, and what a node has. Examples are in `configs/sites/`."""

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field

from configs.fields import STRICT, Count, Home, Positive
from configs.load import parse_tree
from configs.reading.layers import Layers
from configs.reading.shipped import find_yaml

OURS = (
    "array",
    "chdir",
    "dependency",
    "job-name",
    "nodes",
    "open-mode",
    "output",
    "requeue",
    "no-requeue",
    "signal",
    "time",
)
"""Options of sbatch that zeromt gives."""
_OPTION, _VARIABLE = re.compile(r"[a-z][a-z0-9-]*"), re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

Place = Annotated[str, Home]
"""A file or folder; it is quoted, so that a shell does not expand `~`."""
Time = Annotated[str, Field(pattern=r"^([0-9]{1,4}-)?[0-9]{1,6}(:[0-9]{1,2}){0,2}$")]


@dataclasses.dataclass(kw_only=True, frozen=True)
class Profile:
    """How jobs are sent, and what a node has."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    sbatch: dict[str, str | int | float | bool | None] = dataclasses.field(default_factory=dict)
    """Options of sbatch by their long names, such as {partition: gpu, exclusive: true}; false and null: left out."""
    time: Time = "1-00:00:00"
    """Time limit of a job: D-HH:MM:SS, HH:MM:SS, MM:SS or minutes, as in SLURM."""
    gpus_per_node: Count = 8
    """0 for a cluster without GPUs. They are asked for by --gpus-per-node, unless `sbatch` has `gres` or gpus-..."""
    cpus_per_node: Positive | None = None
    """Cores requested on every node."""
    max_requeues: Count = 5
    """Requeues without a new checkpoint before a job gives up; 0 for a site without: see --chain."""
    signal_lead: Annotated[int, Field(ge=1, le=65_535)] | None = None
    """Seconds between the warning and the time limit; None: three times the run's slowest save, at least 300."""
    modules: list[str] = dataclasses.field(default_factory=list)
    """Modules for `module load`, in this order."""
    source: list[Place] = dataclasses.field(default_factory=list)
    """Shell scripts that are then sourced, such as /opt/venv/bin/activate."""
    environment: dict[str, str] = dataclasses.field(default_factory=dict)
    """Environment variables that are then set, such as NCCL_SOCKET_IFNAME."""
    python: Place | None = None
    """The interpreter that has zeromt; None: that of the submission, and `python3` in a container."""
    container: Literal["none", "apptainer", "pyxis"] = "none"
    """What runs container images: Apptainer, or SLURM's plugin pyxis."""
    container_image: Place | None = None
    container_mounts: list[Place] = dataclasses.field(default_factory=list)
    """SOURCE:TARGET, for Apptainer's --bind or pyxis's --container-mounts."""

    def problems(self) -> Iterator[str]:
        """Errors in names and between fields, one line each."""
        if not self.seconds:
            yield f"time: {self.time!r}; allowed is more than nothing"
        if (self.container == "none") != (self.container_image is None):
            yield (
                f"container_image: {self.container_image!r} with container={self.container}; "
                "allowed is an image with apptainer or pyxis, and none with none"
            )
        for name in self.environment:
            if not _VARIABLE.fullmatch(name):
                yield f"environment: {name!r}; allowed are names of variables: letters, digits and _"
        for name in self.sbatch:
            if name in OURS:
                yield f"sbatch.{name}: zeromt gives this option itself; see `zeromt launch slurm --help`"
            elif not _OPTION.fullmatch(name):
                yield f"sbatch: {name!r}; allowed are long names of options without --, such as partition"

    @property
    def seconds(self) -> int:
        """The time limit."""
        days, dash, rest = self.time.rpartition("-")
        parts = [int(part) for part in rest.split(":")]
        units = (3600, 60, 1) if dash or len(parts) == 3 else (60, 1)
        return 86_400 * int(days or 0) + sum(unit * part for unit, part in zip(units, parts, strict=False))


def load_profile(
    name: str | None = None, settings: Sequence[str] = (), changes: Mapping[str, object] | None = None
) -> Profile:
    """Read the profile of a site.

    Args:
        name: a YAML file, or the name of a shipped profile; None uses the defaults.
        settings: `key=value`, which replace fields. Values are read as YAML.
        changes: values by field, which replace those too, unless they are None.

    Raises:
        ConfigError: the profile has errors; the message has a line for each.
        UserError: the file does not exist or cannot be read, or is of another kind.
    """
    what = f"--site: {name}"
    layers = Layers() if name is None else Layers.read(find_yaml("--site", name, "configs.sites"), what=what)
    for item in settings:
        layers.put(item, what="--set")
    plain = layers.resolved(what=what)
    given = {field: value for field, value in (changes or {}).items() if value is not None}
    profile: Profile = parse_tree({**plain, **given}, Profile)
    return profile
