"""This machine, as a cluster of zeromt."""

from typing import Any, ClassVar

from configs.components import component
from launcher.dispatch import resolve
from launcher.jobs import Cluster
from launcher.machine.supervise import Supervisor


@component("cluster", "local")
class LocalCluster(Cluster):
    """This machine alone: torchrun, or the parts of an array, in the foreground."""

    is_foreground: ClassVar[bool] = True

    def launch(self, supervisor: Supervisor | None, **arguments: Any) -> int:
        """Train on this machine, or run an array's parts and their merge, returning at the end."""
        return int(resolve("launcher.clusters.local.launch:launch")(supervisor, **arguments))
