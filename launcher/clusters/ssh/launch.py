"""`zeromt launch ssh`: one job on several machines that share a file system, started by the system's ssh.

It first connects to every host, and sends the job, `zeromt launch node`, only when all have answered. From then on the
hosts meet, restart and notice a lost machine among themselves. This process shows their output, passes on requests to
stop, and ends the job if a connection breaks.
"""

import contextlib
import queue
import random
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configs import UserError, load_run
from configs.plugins import pins_of, variables
from configs.process.streams import note
from launcher.agents.job import shutdown_seconds
from launcher.agents.root_cause import REFUSED, STOPPED
from launcher.agents.secret import SECRET, new_secret
from launcher.clusters.ssh.cluster import SshCluster
from launcher.clusters.ssh.connection import UNREACHABLE, Connection, SshSettings, all_are
from launcher.clusters.ssh.hosts import Host, read_hosts
from launcher.jobs.job import node_arguments
from launcher.machine.supervise import Supervisor

PORTS = range(20_000, 30_000)
"""Ports below those that the kernel assigns by itself (from 32768 on Linux)."""
_BEAT_SECONDS = 1.0
_SILENCE_SECONDS = 30
"""Minimum seconds of silence before the launcher counts as gone; a machine may stall for a while."""
_FORCE_SECONDS = 15.0
"""Seconds for the kill to take effect before the connections are closed too."""


@dataclass(kw_only=True, slots=True, frozen=True)
class SshOptions:
    """The options of `zeromt launch ssh`."""

    config: str
    """A YAML file, or the name of a shipped run; read here and on every host."""
    overrides: Sequence[str]
    nproc: int | None
    """Processes on each host without `slots`; None lets each host choose."""
    max_restarts: int
    """As in `launch node`."""
    rendezvous: tuple[str, int] | None
    """Host and port of node 0; None: the first host's name and a random port."""
    fresh: bool
    """Start at step 0, and rename an existing run."""
    reset: str | None
    """data, optimizer or data,optimizer: what to reset, keeping the weights of the newest checkpoint."""
    parent: str | None = None
    """RUN[@step] with the initial weights of a run without a checkpoint."""
    plugins: Sequence[str] = ()
    """Files with components, in addition to those that the configuration names; every host reads the same files."""


def launch_ssh(cluster: SshCluster, supervisor: Supervisor, **arguments: Any) -> int:
    """`launch`, with the options as keyword arguments."""
    return launch(cluster, supervisor, SshOptions(**arguments))


def launch(cluster: SshCluster, supervisor: Supervisor, options: SshOptions) -> int:
    """Train on several machines.

    Args:
        cluster: the machines, and how to reach them.
        supervisor: its signal handlers are in place.
        options: what to train.

    Returns:
        0 finished; 2 refused; 75 stopped on request after a complete save; 1 anything else, such as a host that could
        not be reached or was lost.

    Raises:
        UserError: the configuration or the file of hosts is wrong.
    """
    run = load_run(options.config, options.overrides, plugins=options.plugins)
    if cluster.hosts is None:
        raise UserError("--hosts: none given; give a file of hosts, here or as `hosts` in the profile's section ssh")
    hosts = read_hosts(Path(cluster.hosts))
    check_processes(hosts, options.nproc, run.stream.micro_batches)
    settings = SshSettings(
        python=cluster.python or sys.executable,
        connect_seconds=cluster.connect_timeout,
        lost_seconds=cluster.node_timeout,
        config=cluster.ssh_config,
        identity=cluster.identity,
    )
    events: queue.Queue[Connection] = queue.Queue()
    connections = [Connection(host, settings, events) for host in hosts]
    grace = shutdown_seconds(run)
    environment = variables(options.config, pins_of(run.plugins, Path(run.folder))) | cluster.environment
    try:
        if not _connect(connections, events, supervisor, cluster.connect_timeout):
            return STOPPED if supervisor.was_stopped else 1
        address = _begin(cluster, options, connections, environment, grace)
        note(f"{len(hosts)} hosts: {', '.join(host.label for host in hosts)}; they meet at {address}")
        return _watch(connections, events, supervisor, grace)
    finally:
        for connection in connections:
            connection.hang_up()


def _begin(
    cluster: SshCluster,
    options: SshOptions,
    connections: Sequence[Connection],
    environment: Mapping[str, str],
    grace: float,
) -> str:
    """Send every host its job; returns where they meet."""
    host, port = options.rendezvous or (connections[0].host.name, random.choice(PORTS))
    common: dict[str, object] = {
        "nnodes": len(connections),
        "rendezvous": f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
        "job_id": f"ssh-{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:8]}",
        "max_restarts": options.max_restarts,
        "join_timeout": cluster.join_timeout,
        "node_timeout": cluster.node_timeout,
        "interface": cluster.interface,
        "fresh": options.fresh,
        "reset": options.reset,
        "from": options.parent,
    }
    secret = new_secret()
    for rank, connection in enumerate(connections):
        own = {"node_rank": rank, "nproc": connection.host.slots or options.nproc}
        connection.begin(
            node_arguments(options.config, options.overrides, {**common, **own}),
            cluster.directory or str(Path.cwd()),
            {"NO_COLOR": "1", SECRET: secret, **environment},
            silence_seconds=max(_SILENCE_SECONDS, cluster.node_timeout),
            grace_seconds=grace,
        )
    return f"{host}:{port}"


def check_processes(hosts: Sequence[Host], nproc: int | None, micro_batches: int) -> None:
    """Refuse more processes than there are lanes.

    Raises:
        UserError: there are more.
    """
    number = sum(host.slots or nproc or 1 for host in hosts)
    if number > micro_batches:
        raise UserError(
            f"--hosts: {len(hosts)} hosts with {number} processes are more than stream.micro_batches={micro_batches}; "
            f"allowed is 1 to {micro_batches} processes"
        )


def _connect(
    connections: Sequence[Connection], events: "queue.Queue[Connection]", supervisor: Supervisor, seconds: int
) -> bool:
    """Wait until every host is ready for its job; False if one is not, which is named, or on a request to stop."""
    deadline = time.monotonic() + seconds
    while not all_are(connections, events, min(deadline, time.monotonic() + 0.2)):
        if supervisor.was_stopped:
            return False
        if time.monotonic() >= deadline:
            break
    for connection in connections:
        if connection.code is not None:
            note(f"host {connection.host.label} {connection.failure()}")
        elif not connection.is_ready:
            note(f"host {connection.host.label} cannot be reached: no answer within {seconds} s")
    return all(c.is_ready and c.code is None for c in connections) and not supervisor.was_stopped


def _watch(
    connections: Sequence[Connection], events: "queue.Queue[Connection]", supervisor: Supervisor, grace: float
) -> int:
    """Wait until all hosts have ended. When one ends, the others have `grace` seconds to end too."""
    said: set[str] = set()
    ended: list[Connection] = []
    deadline = float("inf")
    next_beat = 0.0
    while len(ended) < len(connections):
        with contextlib.suppress(queue.Empty):
            events.get(timeout=0.2)
        now = time.monotonic()
        for connection in connections:
            if connection.code is None or connection in ended:
                continue
            ended.append(connection)
            deadline = min(deadline, now + grace)
            if connection.code == UNREACHABLE:
                note(f"host {connection.host.label} is lost: {connection.failure()}; the others are ended")
        words = [""] if now >= next_beat else []
        next_beat = now + _BEAT_SECONDS if words else next_beat
        if supervisor.request is not None:
            words.append(supervisor.request.name.removeprefix("SIG"))
        elif any(connection.code not in (0, STOPPED) for connection in ended):
            words.append("TERM")
        if now >= deadline:
            words.append("KILL")
        for word in words:
            if word == "" or word not in said:
                said.add(word)
                for connection in connections:
                    connection.send(word)
        if now >= deadline + _FORCE_SECONDS:
            for connection in connections:
                connection.hang_up()
            deadline = float("inf")
    return outcome([connection.code for connection in connections])


def outcome(codes: Sequence[int | None]) -> int:
    """The job's exit code.

    Args:
        codes: of the hosts.
    """
    if REFUSED in codes:
        return REFUSED
    if all(code == codes[0] for code in codes) and codes[0] in (0, STOPPED):
        return int(codes[0] or 0)
    return 1
