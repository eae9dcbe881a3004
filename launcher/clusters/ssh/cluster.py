"""Machines that ssh reaches, as a cluster of zeromt: their settings, and the launch."""

import dataclasses
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar

from pydantic import Field

from configs.components import component
from configs.fields import Positive
from launcher.dispatch import resolve
from launcher.jobs import Cluster
from launcher.jobs.fields import Interface, LossSeconds, Place, Text, variable_problems
from launcher.machine.supervise import Supervisor

Interpreter = Annotated[Place, Field(pattern=r"^[A-Za-z0-9._/~][A-Za-z0-9._/+-]*$")]
"""A path that needs no quotes in any shell: see `options.python`."""


@component("cluster", "ssh")
class SshCluster(Cluster):
    """Machines that share a file system, reached by ssh: torchrun on each, followed in the foreground."""

    is_foreground: ClassVar[bool] = True

    hosts: Place | None = None
    """The file of hosts: see `launcher.clusters.ssh.hosts`."""
    python: Interpreter | None = None
    """The interpreter that has zeromt, on every host; None: that of the launch."""
    directory: Place | None = None
    """The folder in which the job starts on every host; None: that of the launch."""
    environment: dict[str, Text] = dataclasses.field(default_factory=dict)
    """Environment variables of the job on every host, such as NCCL_DEBUG."""
    ssh_config: Place | None = None
    """ssh's configuration (ssh -F)."""
    identity: Place | None = None
    """A private key (ssh -i)."""
    connect_timeout: Annotated[int, Field(ge=1, le=3600)] = 30
    """Seconds within which every host must answer."""
    interface: Interface | None = None
    """Network interface for gloo and NCCL."""
    join_timeout: Positive = 300
    """Seconds within which all hosts must have met."""
    node_timeout: LossSeconds = 15
    """Seconds of silence after which a host is lost."""

    def problems(self) -> Iterator[str]:
        """Errors in single values."""
        yield from variable_problems("environment", self.environment)
        if self.directory is not None and not self.directory.startswith("/"):
            yield f"directory: {self.directory!r}; allowed is an absolute path"

    def launch(self, supervisor: Supervisor | None, **arguments: Any) -> int:
        """Train on the hosts, returning when all have ended."""
        return int(resolve("launcher.clusters.ssh.launch:launch_ssh")(self, supervisor, **arguments))
