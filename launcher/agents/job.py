"""Common to all launches: the job, the command and environment of its agent, and its exit code."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from configs import Plugin, RunConfig, UserError
from configs.plugins import pins_of, variables
from configs.process.signals import GRACE_SECONDS, ORPHANED, STOP_SIGNALS
from launcher.agents.agent import LAUNCHER_PID, REFUSED, STOPPED
from launcher.agents.rendezvous import BACKEND
from trainer.runs.layout import LOGS
from trainer.runs.status import LAUNCH_ID, Status

# torchrun by default does not handle SIGUSR1, a scheduler's usual warning, and would die of it.
SIGNALS = ",".join(number.name for number in STOP_SIGNALS)
# A save, and a collective that times out, must fit between the signal and the agent's SIGKILL.
SHORTEST_SHUTDOWN_SECONDS = 600


@dataclass(kw_only=True, slots=True, frozen=True)
class Node:
    """This machine's place in a job on several machines."""

    rank: int
    """From 0; node 0 hosts the rendezvous, holds the launch lock and decides the final status."""
    num_nodes: int
    job_id: str
    """The same on all nodes, and different from any job that may still use the port."""
    host: str
    """Name or address by which the others reach node 0."""
    port: int
    interface: str | None
    """Network interface for gloo and NCCL; None lets them choose."""
    join_seconds: int
    """Seconds within which all nodes must have joined."""
    lost_seconds: int
    """Seconds of silence after which a node is lost, and the others end."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Job:
    """What an attempt starts."""

    config: str
    overrides: tuple[str, ...]
    num_processes: int
    """On this machine."""
    folder: Path
    """The run's."""
    shutdown_seconds: int
    save_seconds: float = 3600.0
    """Seconds within which ranks must save and end after their agent was killed."""
    reset: str | None = None
    """data, optimizer or data,optimizer: what ranks reset, until a checkpoint holds the result."""
    parent: str | None = None
    """RUN[@step] with whose weights the ranks begin, until there is a checkpoint."""
    plugins: tuple[Plugin, ...] = ()
    """The run's plugins; ranks read copies of the files."""
    node: Node | None = None
    """None for a job on this machine alone."""
    on_cpu: bool = False
    """Whether the user asked for the CPU."""
    numa_binding: str | None = None
    """Value of torchrun's `--numa-binding`; None does not bind ranks to cores."""

    @property
    def logs(self) -> Path:
        """Folder of the ranks' logs; each of several nodes has its own."""
        return self.folder / LOGS if self.node is None else self.folder / LOGS / f"node-{self.node.rank}"

    @property
    def is_first_node(self) -> bool:
        """Whether this machine is the job's first node."""
        return self.node is None or self.node.rank == 0


def shutdown_seconds(run: RunConfig) -> int:
    """Seconds that the agent gives its ranks between a request to stop and SIGKILL."""
    return max(SHORTEST_SHUTDOWN_SECONDS, round(60 * run.engine.communication_timeout_minutes))


def choose_processes(requested: int | None, micro_batches: int, *, gpus: int, cores: int, nodes: int = 1) -> int:
    """How many ranks to start on this machine.

    Args:
        requested: the user's number; None for auto.
        micro_batches: K of the stream, whose lanes the nodes share; a rank without one would be idle.
        gpus: GPUs that the ranks will see.
        cores: cores that the ranks may use.
        nodes: number of nodes of the job.

    Raises:
        UserError: more than there are lanes, or more than there are GPUs if there are any.
    """
    lanes = micro_batches // nodes
    if requested is None:
        return min(gpus or cores, lanes)
    if requested > lanes:
        each = f" on each of {nodes} nodes" if nodes > 1 else ""
        raise UserError(
            f"--nproc: {requested}{each} is more than stream.micro_batches={micro_batches}; allowed is 1 to {lanes}"
        )
    if gpus and requested > gpus:
        raise UserError(
            f"--nproc: {requested} is more than the GPUs of this machine; allowed is 1 to {gpus}, "
            "or CUDA_VISIBLE_DEVICES= in the environment to train on the CPU"
        )
    return requested


def describe_idle(gpus: int, num_processes: int, micro_batches: int, *, nodes: int = 1) -> str:
    """A warning about idle GPUs of this machine; empty if all are used.

    Args:
        gpus: that the ranks could use.
        num_processes: of this machine.
        micro_batches: K of the stream, whose lanes the nodes share.
        nodes: number of nodes of the job.
    """
    if num_processes >= gpus:
        return ""
    is_for_lanes = num_processes == micro_batches // nodes
    most = f"stream.micro_batches={micro_batches}" if is_for_lanes else f"--nproc {num_processes}"
    more = f"stream.micro_batches={gpus * nodes}" if is_for_lanes else f"--nproc {gpus}"
    idle = gpus - num_processes
    return f"; {idle} of its {gpus} GPUs {'is' if idle == 1 else 'are'} idle with {most}, {more} would use all"


def torchrun_command(job: Job, launch_id: str, *, reset: str | None = None, python: str = sys.executable) -> list[str]:
    """The agent's command line; rank 0 writes to the terminal, the others to files in the run's folder."""
    return [
        python,
        "-m",
        "launcher.agents.agent",
        f"--nnodes={1 if job.node is None else job.node.num_nodes}",
        f"--nproc-per-node={job.num_processes}",
        *_rendezvous_options(job.node, launch_id),
        *([f"--numa-binding={job.numa_binding}"] if job.numa_binding else []),
        "--max-restarts=0",
        f"--signals-to-handle={SIGNALS}",
        f"--log-dir={job.logs}",
        *_log_options(job),
        "-m",
        "trainer",
        _verbatim(job.config),
        *(["--reset", reset] if reset else []),
        *([] if job.parent is None else ["--from", _verbatim(job.parent)]),
        *map(_verbatim, job.overrides),
    ]


def _verbatim(argument: str) -> str:
    """An argument escaped for torchrun, which substitutes `$local_rank` and `$$`."""
    return argument.replace("$", "$$")


def _rendezvous_options(node: Node | None, launch_id: str) -> list[str]:
    """Options of the rendezvous. A single machine needs none, and opens no port for it."""
    if node is None:
        return [f"--rdzv-backend={BACKEND}", f"--rdzv-id={launch_id}"]
    conf = {
        "is_host": int(node.rank == 0),
        "join_timeout": node.join_seconds,
        "keep_alive_interval": max(1, node.lost_seconds // 3),
        "keep_alive_max_attempt": 3,
    }
    return [
        f"--rdzv-backend={BACKEND}",
        f"--rdzv-endpoint={node.host}:{node.port}",
        f"--rdzv-id={launch_id}",
        "--rdzv-conf=" + ",".join(f"{key}={value}" for key, value in conf.items()),
        f"--node-rank={node.rank}",
    ]


def _log_options(job: Job) -> list[str]:
    """Options for the ranks' output.

    torchrun's map only takes single digits; beyond these, and if it is not known yet which node gets rank 0, the output
    of the node's first rank is copied to the terminal.
    """
    if job.node is not None or job.num_processes > 10:
        return ["--redirects=3", "--tee=0:3"]
    if job.num_processes == 1:
        return []
    return ["--redirects=" + ",".join(f"{rank}:3" for rank in range(1, job.num_processes))]


def child_environment(
    environ: Mapping[str, str],
    *,
    job: Job,
    cores: int,
    launch_id: str,
    launcher_pid: int,
) -> dict[str, str]:
    """The environment of the agent and the ranks.

    PYTHONSAFEPATH keeps the current folder, where a user may have a `model/` or a `trainer.py`, off the path; an empty
    entry of PYTHONPATH must not bring it back. PET_* are torchrun's options as variables.
    """
    child = {name: value for name, value in environ.items() if not name.startswith("PET_")}
    paths = [p for p in child.pop("PYTHONPATH", "").split(os.pathsep) if p not in ("", ".", "./")]
    if paths:
        child["PYTHONPATH"] = os.pathsep.join(paths)
    child.setdefault("OMP_NUM_THREADS", str(max(1, cores // job.num_processes)))
    child |= {
        "PYTHONSAFEPATH": "1",
        "PYTHONUNBUFFERED": "1",
        LAUNCH_ID: launch_id,
        LAUNCHER_PID: str(launcher_pid),
        GRACE_SECONDS: str(job.shutdown_seconds),
        **variables(job.config, pins_of(job.plugins, job.folder)),
    }
    if job.on_cpu:
        child["CUDA_VISIBLE_DEVICES"] = ""
    if job.node is not None:
        child["TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"] = "rank ${rank}: "
        if job.node.interface is not None:
            child |= dict.fromkeys(("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"), job.node.interface)
    return child


def outcome(status: Status | None, agent_code: int, *, was_stopped: bool) -> int:
    """The launcher's exit code.

    Args:
        status: written by rank 0 during this launch.
        agent_code: the agent's exit code, which tells little more than whether a rank failed.
        was_stopped: whether a signal asked the launcher to stop.
    """
    if status is not None and status.is_settled:
        # Ranks whose agent died have saved and ended without a request to stop.
        return 1 if is_orphaned(status) and not was_stopped else status.exit_code
    if agent_code in (REFUSED, STOPPED):
        return agent_code
    if status is None and was_stopped:
        return STOPPED  # the ranks had not begun, so nothing was lost, and the same command starts them again
    # "running" stays where the disk had no room for the last status, of which rank 0 has warned.
    is_unknown = status is None or status.state == "running"
    return 0 if agent_code == 0 and is_unknown else 1


def is_orphaned(status: Status | None) -> bool:
    """Whether the ranks stopped because their agent was gone."""
    return status is not None and status.state == "stopped" and status.stop_reason == ORPHANED
