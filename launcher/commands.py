"""Launching in the foreground: signal handlers are installed before any heavy import."""

from typing import Any

from launcher.dispatch import resolve
from launcher.machine.supervise import Supervisor


def launch_here(**arguments: Any) -> int:
    """`zeromt launch KIND` for a job in the foreground: see `launcher.jobs.command.launch`."""
    asks = {} if arguments.get("array") is None else {"asks": "the parts to stop"}
    with Supervisor(**asks) as supervisor:
        code = resolve("launcher.jobs.command:launch")(supervisor=supervisor, **arguments)
        supervisor.settle()
    return int(code)


def launch_node(**arguments: Any) -> int:
    """`zeromt launch node`: see `launcher.agents.node.launch`."""
    with Supervisor() as supervisor:
        code = resolve("launcher.agents.node:launch_node")(supervisor, **arguments)
        supervisor.settle()
    return int(code)
