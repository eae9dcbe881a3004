"""Machines that ssh reaches, as a cluster of zeromt."""

from typing import Any

from configs.components import component
from launcher.clusters.ssh.section import SshSection
from launcher.dispatch import resolve
from launcher.machine.supervise import Supervisor


@component("cluster", "ssh")
class SshCluster(SshSection):
    """Machines that share a file system, reached by ssh: torchrun on each, followed in the foreground."""

    def launch(self, supervisor: Supervisor | None, **arguments: Any) -> int:
        """Train on the hosts, returning when all have ended."""
        return int(resolve("launcher.clusters.ssh.launch:launch_ssh")(self, supervisor, **arguments))
