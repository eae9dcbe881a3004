"""What every launch has in common: the job, the command and environment of its agent, the meaning of its end."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from configs import Plugin, RunConfig, UserError
from configs.plugins import pins_of, variables
from launcher.agents.agent import LAUNCHER_PID, REFUSED, STOPPED
from launcher.machine.process_title import ROOM, ROOM_LENGTH
from trainer.runs.layout import LOGS
from trainer.runs.signals import GRACE_SECONDS, ORPHANED, STOP_SIGNALS
from trainer.runs.status import LAUNCH_ID, Status

# By itself torchrun does not handle SIGUSR1, the usual warning of a batch system: it would die of it.
SIGNALS = ",".join(number.name for number in STOP_SIGNALS)
# A save must fit between the signal and the agent's SIGKILL, and so must a collective that will time out.
SHORTEST_SHUTDOWN_SECONDS = 600


@dataclass(kw_only=True, slots=True, frozen=True)
class Node:
    """This machine among those of a job on several."""

    rank: int
    """From 0; node 0 hosts the rendezvous, holds the launch lock and has the last word on the status."""
    num_nodes: int
    job_id: str
    """The same on all nodes, and of no other job that may still use the port."""
    host: str
    """Name or address of node 0, as the others reach it."""
    port: int
    address: str
    """Of this node, for the others."""
    interface: str | None
    """Network interface of gloo and NCCL; None leaves it to them."""
    join_seconds: int
    """All nodes must have come within these."""
    lost_seconds: int
    """A node without a sign for so long is lost, and the others end."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Job:
    """What is started, once for every attempt."""

    config: str
    overrides: tuple[str, ...]
    num_processes: int
    """On this machine."""
    folder: Path
    """The run's."""
    shutdown_seconds: int
    save_seconds: float = 3600.0
    """Seconds in which ranks whose agent was killed must save and end."""
    reset: str | None = None
    """data, optimizer or data,optimizer: begun anew by the ranks, until a checkpoint holds the result."""
    parent: str | None = None
    """RUN[@step] whose weights the ranks begin with, until a checkpoint is there."""
    plugins: tuple[Plugin, ...] = ()
    """Of the run; the ranks read copies of the files."""
    node: Node | None = None
    """None: this machine is all there is."""
    on_cpu: bool = False
    """Whether the CPU is asked for, whatever else there is."""
    numa_binding: str | None = None
    """Of torchrun's option; None binds no rank to cores."""

    @property
    def logs(self) -> Path:
        """Folder of the ranks' logs; of several nodes, each has its own."""
        return self.folder / LOGS if self.node is None else self.folder / LOGS / f"node-{self.node.rank}"

    @property
    def is_first_node(self) -> bool:
        """Whether this machine speaks for the job."""
        return self.node is None or self.node.rank == 0


def shutdown_seconds(run: RunConfig) -> int:
    """Seconds that the agent leaves its ranks between a request to stop and the end by force."""
    return max(SHORTEST_SHUTDOWN_SECONDS, round(60 * run.engine.communication_timeout_minutes))


def choose_processes(requested: int | None, micro_batches: int, *, gpus: int, cores: int) -> int:
    """How many ranks to start on this machine.

    Args:
        requested: as the user said; None stands for auto.
        micro_batches: of the stream's K lanes, those for this machine; a rank without one would have nothing to do.
        gpus: GPUs that the ranks will see.
        cores: cores that they may use.

    Raises:
        UserError: more than there are lanes, or GPUs where there is one at all.
    """
    if requested is None:
        return min(gpus or cores, micro_batches)
    if requested > micro_batches:
        raise UserError(
            f"--nproc: {requested} is more than stream.micro_batches={micro_batches}; allowed is 1 to {micro_batches}"
        )
    if gpus and requested > gpus:
        raise UserError(
            f"--nproc: {requested} is more than the GPUs of this machine; allowed is 1 to {gpus}, "
            "or CUDA_VISIBLE_DEVICES= in the environment to train on the CPU"
        )
    return requested


def describe_idle(gpus: int, num_processes: int, lanes: int, *, of_each: int = 1) -> str:
    """What is said of GPUs of this machine that nothing runs on; empty where all are in use.

    Args:
        gpus: that the ranks could use.
        num_processes: of this machine.
        lanes: of the stream's K lanes, those for this machine.
        of_each: nodes of the job.
    """
    if num_processes >= gpus:
        return ""
    most = f"stream.micro_batches={lanes * of_each}" if num_processes == lanes else f"--nproc {num_processes}"
    more = f"stream.micro_batches={gpus * of_each}" if num_processes == lanes else f"--nproc {gpus}"
    idle = gpus - num_processes
    return f"; {idle} of its {gpus} GPUs {'is' if idle == 1 else 'are'} idle with {most}, {more} would use all"


def torchrun_command(job: Job, launch_id: str, *, reset: str | None = None, python: str = sys.executable) -> list[str]:
    """The child's command line; rank 0 writes to the terminal, the others to files below the run's folder."""
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
        f"--shutdown-timeout={job.shutdown_seconds}",
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
    """An argument as torchrun passes it on unchanged: it substitutes `$local_rank` and `$$`."""
    return argument.replace("$", "$$")


def _rendezvous_options(node: Node | None, launch_id: str) -> list[str]:
    """Where the agents meet. Alone, on port 0, which takes a free one, so that jobs side by side do not meet."""
    if node is None:
        return [
            "--rdzv-backend=c10d",
            "--rdzv-endpoint=localhost:0",
            f"--rdzv-id={launch_id}",
            "--local-addr=localhost",
        ]
    interval = max(1, node.lost_seconds // 3)
    conf = {
        "is_host": int(node.rank == 0),
        "join_timeout": node.join_seconds,
        "keep_alive_interval": interval,
        "keep_alive_max_attempt": 3,
    }
    return [
        "--rdzv-backend=c10d",
        f"--rdzv-endpoint={node.host}:{node.port}",
        f"--rdzv-id={launch_id}",
        "--rdzv-conf=" + ",".join(f"{key}={value}" for key, value in conf.items()),
        f"--node-rank={node.rank}",
        f"--local-addr={node.address}",
    ]


def _log_options(job: Job) -> list[str]:
    """Which ranks write where.

    torchrun's map takes single digits only; beyond them, and where nobody knows yet which node will have rank 0, the
    first one is copied.
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

    PYTHONSAFEPATH keeps the current folder, where a user may have a `model/` or a `trainer.py`, off the path;
    an empty entry of PYTHONPATH must not bring it back. PET_* are torchrun's options in another guise.
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
        ROOM: "." * ROOM_LENGTH,
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
        status: what rank 0 wrote during this launch.
        agent_code: the agent's exit code. torchrun knows of its workers little more than whether they failed.
        was_stopped: whether a signal asked the launcher to stop.
    """
    if status is not None and status.is_settled:
        # Ranks whose agent died have saved and ended, and nobody had asked them to.
        return 1 if is_orphaned(status) and not was_stopped else status.exit_code
    if agent_code in (REFUSED, STOPPED):
        return agent_code
    if status is None and was_stopped:
        return STOPPED  # the ranks had not begun: nothing was lost, and the same command starts them again
    return 0 if agent_code == 0 and status is None else 1


def is_orphaned(status: Status | None) -> bool:
    """Whether the ranks stopped because their agent was gone."""
    return status is not None and status.state == "stopped" and status.stop_reason == ORPHANED
