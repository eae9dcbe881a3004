"""`zeromt launch node`: runs once on each machine of a job on several, started by srun, pdsh, a JobSet or by hand."""

import ipaddress
import os
import socket
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import psutil

from configs import UserError, load_run
from configs.process.signals import STOPPED
from configs.process.streams import note
from launcher.machine.supervise import RankSupervisor
from launcher.start.attempt import attempt, holding_run
from launcher.start.ranks import Node, make_job
from trainer.runs.status import write_status


def launch(
    *,
    nnodes: int,
    node_rank: int | None,
    rendezvous: tuple[str, int],
    job_id: str,
    interface: str | None,
    **arguments: Any,
) -> int:
    """Train on this machine together with others that were started in the same way; none starts again by itself.

    Args:
        nnodes: number of machines of the job.
        node_rank: number of this machine, from 0; None: SLURM's.
        rendezvous: host and port of node 0.
        job_id: the same on all nodes, and new for every start.
        interface: network interface for gloo and NCCL.
        arguments: those of `launcher.start.local.launch` but restarts.

    Returns:
        As `launch local`; but under srun 0 where the ranks of all nodes ended as they had agreed, which the batch
        script looks up: it kills the other nodes at any other code.

    Raises:
        UserError: an argument is wrong, or another job writes the run.
    """
    with RankSupervisor() as supervisor:
        node = None
        try:
            if nnodes > 1:
                rank = choose_rank(node_rank, nnodes, os.environ)
                check_network(rendezvous, interface, is_first=rank == 0)
                host, port = rendezvous
                node = Node(rank=rank, num_nodes=nnodes, host=host, port=port, interface=interface)
            job = make_job(node=node, **arguments)
        except UserError as error:
            _note_refusal(error, job_id, **arguments)
            raise
        is_first = node is None or node.rank == 0
        with holding_run(job) if is_first else nullcontext():
            if is_first:
                each = f"{job.num_processes} process{'es' * (job.num_processes > 1)} on each of {nnodes} nodes"
                note(f"{each}{job.idle}; logs: {job.logs.parent}")
            code = attempt(job, supervisor, job_id, reset=job.reset)
        supervisor.settle()
    return 0 if code == STOPPED and "SLURM_STEP_ID" in os.environ else code


def _note_refusal(
    error: UserError, job_id: str, *, config: str, overrides: Sequence[str], plugins: Sequence[str], **_: Any
) -> None:
    """Write into status.json that this start is refused: this node's exit code may be lost among the others'."""
    with suppress(UserError, OSError):  # without a run's folder there is nowhere to write it
        folder = Path(load_run(config, overrides, plugins=plugins).folder)
        write_status(folder, "refused", error=str(error), launch_id=job_id)


def choose_rank(requested: int | None, num_nodes: int, environ: Mapping[str, str]) -> int:
    """This node's number among the job's.

    Raises:
        UserError: no number was given, or it is out of range.
    """
    name, given = "--node-rank", None if requested is None else str(requested)
    if given is None:
        name, given = "SLURM_NODEID", environ.get("SLURM_NODEID")
    if given is None:
        raise UserError(f"--node-rank: none given; allowed is 0 to {num_nodes - 1}, or SLURM_NODEID in the environment")
    if not (given.isascii() and given.isdigit() and int(given) < num_nodes):
        raise UserError(f"{name}: {given} with --nnodes {num_nodes}; allowed is 0 to {num_nodes - 1}")
    return int(given)


def check_network(rendezvous: tuple[str, int], interface: str | None, *, is_first: bool) -> None:
    """Check that this node can reach node 0, and has the named interface.

    Raises:
        UserError: there is no such interface, node 0's name is unknown here, or this node's own name would lead the
            others to themselves.
    """
    addresses = {
        name: [one.address.partition("%")[0] for one in entries if one.family in (socket.AF_INET, socket.AF_INET6)]
        for name, entries in psutil.net_if_addrs().items()
    }
    there = ", ".join(name for name, ips in addresses.items() if ips)
    if interface is not None:
        if not addresses.get(interface.split(",")[0]):
            raise UserError(
                f"--interface: {interface!r} has no IP address on {socket.gethostname()}; allowed is one of {there}"
            )
        return
    if is_first or os.environ.get("GLOO_SOCKET_IFNAME"):
        return
    route, own = _route(*rendezvous), socket.gethostname()
    with suppress(OSError):
        names = {str(info[4][0]) for info in socket.getaddrinfo(own, None, type=socket.SOCK_STREAM)}
        if not _is_loopback(route) and all(map(_is_loopback, names)):
            raise UserError(
                f"--interface: none given, and {own}, this machine's own name, is {', '.join(sorted(names))} "
                f"(/etc/hosts), where other machines do not reach it; give the one that has {route}, of {there}"
            )


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address).is_loopback


def _route(host: str, port: int) -> str:
    """The address that this machine has on the way to node 0."""
    problem: OSError | None = None
    try:
        for family, kind, _, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM):
            try:
                with socket.socket(family, kind) as probe:
                    probe.connect(address)  # a datagram socket only asks the routing table and sends nothing
                    return str(probe.getsockname()[0])
            except OSError as error:
                problem = error
    except OSError as error:
        problem = error
    raise UserError(
        f"--rendezvous: {host!r} cannot be reached from {socket.gethostname()}: {problem and problem.strerror}; "
        "allowed is a name or address of node 0 that all nodes know"
    )
