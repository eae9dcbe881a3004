"""`zeromt launch node`: runs once on each machine of a job on several, started by srun, pdsh, a JobSet or by hand."""

import contextlib
import ipaddress
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from configs import UserError, load_run
from configs.process.environment import check_machine
from configs.process.gpus import gpus_to_use
from configs.zero_keys import check_ranks
from launcher.agents.attempts import run_job
from launcher.agents.job import Job, Node, choose_processes, describe_idle, shutdown_seconds
from launcher.machine.cores import choose_binding, num_cores
from launcher.machine.supervise import Supervisor
from launcher.start.datasets import check_datasets
from trainer.runs.layout import LOGS


@dataclass(kw_only=True, slots=True, frozen=True)
class NodeOptions:
    """The options of `zeromt launch node`; `launch local` has those without a default."""

    config: str
    """A YAML file, or the name of a shipped run."""
    nproc: int | None
    """Processes on this machine; None takes one for each GPU, else for each core, up to its part of
    stream.micro_batches."""
    max_restarts: int
    """Restarts after failures; every new checkpoint resets the count."""
    overrides: Sequence[str]
    fresh: bool
    """Start at step 0, and rename an existing run."""
    reset: str | None
    """data, optimizer or data,optimizer: what to reset, keeping the weights of the newest checkpoint."""
    parent: str | None
    """RUN[@step] with the initial weights of a run without a checkpoint."""
    plugins: Sequence[str]
    """Files with components, in addition to those that the configuration names."""
    nnodes: int = 1
    """Number of machines of the job."""
    node_rank: int | None = None
    """Number of this machine, from 0; None: SLURM's."""
    rendezvous: tuple[str, int] = ("", 0)
    """Host and port of node 0."""
    job_id: str = ""
    """The same on all nodes, and unique to this start."""
    interface: str | None = None
    """Network interface for gloo and NCCL."""
    join_timeout: int = 0
    """Seconds within which all nodes must have joined."""
    node_timeout: int = 0
    """Seconds of silence after which a node is lost."""


def launch(supervisor: Supervisor, **arguments: Any) -> int:
    """Train on this machine, alone or together with others that were started in the same way.

    Args:
        supervisor: runs the ranks; its signal handlers are in place.
        arguments: the fields of `NodeOptions`.

    Returns:
        0 finished; 2 refused by the ranks; 75 stopped on request after a complete save; 1 anything else. Every node
        ends with the outcome of the job.

    Raises:
        UserError: the configuration or an argument is wrong, the dataset is not prepared, or another job writes the
            run.
    """
    options = NodeOptions(**arguments)
    run = load_run(options.config, options.overrides, plugins=options.plugins)
    check_machine(os.environ)
    check_datasets(run, options.config, options.overrides, options.plugins, parent=options.parent)
    node = _node(options)
    lanes = run.stream.micro_batches
    if options.nnodes > lanes:
        raise UserError(
            f"--nnodes: {options.nnodes} is more than stream.micro_batches={lanes}; allowed is 1 to {lanes}"
        )
    cores, gpus = num_cores(), gpus_to_use(run.engine.device, os.environ)
    binding = choose_binding(run.engine.numa_binding, gpus=gpus)
    job = Job(
        config=options.config,
        overrides=tuple(options.overrides),
        num_processes=choose_processes(options.nproc, lanes, gpus=gpus, cores=cores, nodes=options.nnodes),
        folder=Path(run.folder),
        shutdown_seconds=shutdown_seconds(run),
        save_seconds=60 * run.supervision.save_minutes,
        on_cpu=run.engine.device == "cpu",
        numa_binding=binding.mode,
        reset=options.reset,
        parent=options.parent,
        plugins=tuple(run.plugins),
        node=node,
    )
    check_ranks(run.engine.zero_optimization, ranks=options.nnodes * job.num_processes, on_each=job.num_processes)
    idle = describe_idle(gpus, job.num_processes, lanes, nodes=options.nnodes)
    where, logs = f"on each of {options.nnodes} nodes", f"; logs: {job.folder / LOGS}"
    if node is None:
        where = "on this machine"
        logs = f"; logs of the others than rank 0: {job.logs}" if job.num_processes > 1 else ""
    begin = f"{job.num_processes} process{'es' * (job.num_processes > 1)} {where}{idle}{binding.said}{logs}"
    return run_job(job, supervisor, cores=cores, max_restarts=options.max_restarts, fresh=options.fresh, begin=begin)


def _node(options: NodeOptions) -> Node | None:
    """This machine's place among the nodes; None if it is alone."""
    if options.nnodes == 1:
        return None
    rank = choose_rank(options.node_rank, options.nnodes, os.environ)
    check_network(options.rendezvous, options.interface, is_first=rank == 0)
    return Node(
        rank=rank,
        num_nodes=options.nnodes,
        job_id=options.job_id,
        host=options.rendezvous[0],
        port=options.rendezvous[1],
        interface=options.interface,
        join_seconds=options.join_timeout,
        lost_seconds=options.node_timeout,
    )


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
    if interface is not None:
        _check_interface(interface.split(",")[0])
    elif not is_first:
        _check_name(_check_route(*rendezvous))


def _check_route(host: str, port: int) -> str:
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


def _check_name(route: str) -> None:
    """Check that gloo, which takes the address of this machine's own name, gets one at which others reach it."""
    name = socket.gethostname()
    if os.environ.get("GLOO_SOCKET_IFNAME") or ipaddress.ip_address(route).is_loopback:
        return
    with contextlib.suppress(OSError):
        usable = _interfaces()
        own = {str(info[4][0]) for info in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)}
        if all(ipaddress.ip_address(one).is_loopback for one in own):
            raise UserError(
                f"--interface: none given, and {name}, this machine's own name, is {', '.join(sorted(own))} "
                f"(/etc/hosts), where other machines do not reach it; give the one that has {route}: "
                f"{' or '.join(name for name, ips in usable.items() if route in ips) or ', '.join(usable)}"
            )


def _check_interface(interface: str) -> None:
    if not _addresses().get(interface):
        raise UserError(
            f"--interface: {interface!r} has no IP address on {socket.gethostname()}; allowed is one of "
            f"{', '.join(_interfaces())}"
        )


def _interfaces() -> dict[str, list[str]]:
    """The interfaces at which others can reach this machine, with their IP addresses; loopback if there is no other."""
    interfaces = {name: ips for name, ips in _addresses().items() if ips}
    far = {name: ips for name, ips in interfaces.items() if not all(ipaddress.ip_address(ip).is_loopback for ip in ips)}
    return far or interfaces


def _addresses() -> dict[str, list[str]]:
    """The IP addresses of each interface, without the scope that those of IPv6 may have."""
    families = (socket.AF_INET, socket.AF_INET6)
    return {
        name: [one.address.partition("%")[0] for one in addresses if one.family in families]
        for name, addresses in psutil.net_if_addrs().items()
    }
