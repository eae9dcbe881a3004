"""Launching in the foreground: signal handlers are installed before any heavy import."""

from typing import Any

from launcher.dispatch import resolve
from launcher.machine.supervise import Supervisor


def launch_local(**arguments: Any) -> int:
    """`zeromt launch local`: see `launcher.local.launch`."""
    asks = {} if arguments.get("array") is None else {"asks": "the parts to stop"}
    with Supervisor(**asks) as supervisor:
        code = resolve("launcher.local:launch")(supervisor, **arguments)
        supervisor.settle()
    return int(code)


def launch_node(**arguments: Any) -> int:
    """`zeromt launch node`: see `launcher.agents.node.launch`."""
    with Supervisor() as supervisor:
        code = resolve("launcher.agents.node:launch")(supervisor, **arguments)
        supervisor.settle()
    return int(code)
