"""`zeromt launch node`: runs once on each machine of a job on several, started by srun or ssh."""

import fcntl
import os
import socket
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configs import UserError, load_run
from configs.zero_keys import check_ranks
from launcher.agents.attempts import run_job
from launcher.agents.datasets import check_datasets
from launcher.agents.job import Job, Node, choose_processes, describe_idle, shutdown_seconds
from launcher.machine.hardware import num_cores
from launcher.machine.numa import choose_binding
from launcher.machine.supervise import Supervisor
from trainer.runs.layout import LOGS
from trainer.runs.process.environment import check_machine
from trainer.runs.process.gpus import gpus_to_use

_SIOCGIFADDR = 0x8915
"""ioctl that asks for an interface's IPv4 address; netdevice(7)."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Order:
    """The options of `zeromt launch node`."""

    config: str
    """A YAML file, or the name of a shipped run."""
    nproc: int | None
    """Processes on this machine; None takes one for each GPU, else for each core, up to its part of
    stream.micro_batches."""
    max_restarts: int
    """Restarts after failures; every new checkpoint resets the count."""
    overrides: Sequence[str]
    nnodes: int
    """Number of machines of the job."""
    node_rank: int | None
    """Number of this machine, from 0; None: SLURM's."""
    rendezvous: tuple[str, int]
    """Host and port of node 0."""
    job_id: str
    """The same on all nodes, and unique to this start."""
    interface: str | None
    """Network interface for gloo and NCCL."""
    join_timeout: int
    """Seconds within which all nodes must have joined."""
    node_timeout: int
    """Seconds of silence after which a node is lost."""
    fresh: bool
    """Start at step 0, and rename an existing run."""
    reset: str | None
    """data, optimizer or data,optimizer: what to reset, keeping the weights of the newest checkpoint."""
    parent: str | None = None
    """RUN[@step] with the initial weights of a run without a checkpoint."""
    plugins: Sequence[str] = ()
    """Files with components, in addition to those that the configuration names."""


def launch_node(supervisor: Supervisor, **arguments: Any) -> int:
    """`launch`, with the fields of an order as keyword arguments."""
    return launch(supervisor, Order(**arguments))


def launch(supervisor: Supervisor, order: Order) -> int:
    """Train on this machine, together with others that were started in the same way.

    Args:
        supervisor: runs the ranks; its signal handlers are in place.
        order: what to train, and on which nodes.

    Returns:
        0 finished; 2 refused by the ranks; 75 stopped on request after a complete save; 1 anything else. Every node
        ends with the outcome of the job.

    Raises:
        UserError: the configuration or an argument is wrong, the dataset is not prepared, or another job writes the
            run.
    """
    run = load_run(order.config, order.overrides, plugins=order.plugins)
    check_machine(os.environ)
    check_datasets(run, order.config, order.overrides, order.plugins, parent=order.parent)
    node = _node(order)
    if order.nnodes > run.stream.micro_batches:
        raise UserError(
            f"--nnodes: {order.nnodes} is more than stream.micro_batches={run.stream.micro_batches}; "
            f"allowed is 1 to {run.stream.micro_batches}"
        )
    cores, gpus = num_cores(), gpus_to_use(run.engine.device, os.environ)
    binding = choose_binding(run.engine.numa_binding, gpus=gpus)
    lanes = run.stream.micro_batches // order.nnodes
    job = Job(
        config=order.config,
        overrides=tuple(order.overrides),
        num_processes=choose_processes(order.nproc, lanes, gpus=gpus, cores=cores),
        folder=Path(run.folder),
        shutdown_seconds=shutdown_seconds(run),
        save_seconds=60 * run.supervision.save_minutes,
        on_cpu=run.engine.device == "cpu",
        numa_binding=binding.mode,
        reset=order.reset,
        parent=order.parent,
        plugins=tuple(run.plugins),
        node=node,
    )
    ranks = order.nnodes * job.num_processes
    check_ranks(run.engine.zero_optimization, ranks=ranks, on_each=job.num_processes)
    idle = describe_idle(gpus, job.num_processes, lanes, of_each=order.nnodes)
    where = (f"on each of {order.nnodes} nodes" if order.nnodes > 1 else "on this node") + idle + binding.said
    begin = f"{job.num_processes} process{'es' * (job.num_processes > 1)} {where}; logs: {job.folder / LOGS}"
    return run_job(job, supervisor, cores=cores, max_restarts=order.max_restarts, fresh=order.fresh, begin=begin)


def _node(order: Order) -> Node | None:
    """This machine's place among the nodes; None if it is alone."""
    if order.nnodes == 1:
        return None
    rank = choose_rank(order.node_rank, order.nnodes, os.environ)
    return Node(
        rank=rank,
        num_nodes=order.nnodes,
        job_id=order.job_id,
        host=order.rendezvous[0],
        port=order.rendezvous[1],
        address=own_address(order.rendezvous, order.interface, is_first=rank == 0),
        interface=order.interface,
        join_seconds=order.join_timeout,
        lost_seconds=order.node_timeout,
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


def own_address(rendezvous: tuple[str, int], interface: str | None, *, is_first: bool) -> str:
    """The address by which other nodes reach this one.

    It is that of the named interface, if there is one; otherwise node 0 uses the rendezvous' host, and the others use
    the address from which they reach node 0.

    Raises:
        UserError: there is no such interface, or node 0's name is unknown here.
    """
    if interface is not None:
        return _address_of(interface.split(",")[0])
    host, port = rendezvous
    if is_first:
        return host
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((host, port))  # a datagram socket only asks the routing table and sends nothing
        except OSError as error:
            raise UserError(
                f"--rendezvous: {host!r} cannot be reached from {socket.gethostname()}: {error.strerror}; "
                "allowed is a name or address of node 0 that all nodes know"
            ) from error
        return str(probe.getsockname()[0])


def _address_of(interface: str) -> str:
    """The IPv4 address of an interface."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, struct.pack("256s", interface.encode()))
        except OSError as error:
            there = ", ".join(name for _, name in socket.if_nameindex())
            raise UserError(
                f"--interface: {interface!r} has no IPv4 address on {socket.gethostname()}: {error.strerror}; "
                f"allowed is one of {there}"
            ) from error
    return socket.inet_ntoa(answer[20:24])
