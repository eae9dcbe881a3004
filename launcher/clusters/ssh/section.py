"""What a job needs to know of machines that ssh reaches."""

import dataclasses
from collections.abc import Iterator
from typing import Annotated, ClassVar

from pydantic import Field

from configs.fields import Positive
from launcher.jobs import Cluster
from launcher.jobs.fields import Interface, LossSeconds, Place, Text, variable_problems

Interpreter = Annotated[Place, Field(pattern=r"^[A-Za-z0-9._/~][A-Za-z0-9._/+-]*$")]
"""It needs no quotes in any shell: see `options.python`."""


@dataclasses.dataclass(kw_only=True, frozen=True)
class SshSection(Cluster):
    """Which hosts, and how they are reached."""

    is_foreground: ClassVar[bool] = True

    hosts: Place | None = None
    """The file that names them: see `launcher.clusters.ssh.hosts`."""
    python: Interpreter | None = None
    """That has zeromt, on every host; None: that of the launch."""
    directory: Place | None = None
    """In which the job starts on every host; None: that of the launch."""
    environment: dict[str, Text] = dataclasses.field(default_factory=dict)
    """Variables of the job on every host, such as NCCL_DEBUG."""
    ssh_config: Place | None = None
    """ssh's configuration (ssh -F)."""
    identity: Place | None = None
    """File of a private key (ssh -i)."""
    connect_timeout: Annotated[int, Field(ge=1, le=3600)] = 30
    """Seconds within which every host must answer."""
    interface: Interface | None = None
    """Network interface of gloo and NCCL."""
    join_timeout: Positive = 300
    """Seconds within which all hosts must have met."""
    node_timeout: LossSeconds = 15
    """Seconds of silence after which a host is lost."""

    def problems(self) -> Iterator[str]:
        """What is wrong with single values."""
        yield from variable_problems("environment", self.environment)
        if self.directory is not None and not self.directory.startswith("/"):
            yield f"directory: {self.directory!r}; allowed is an absolute path"
