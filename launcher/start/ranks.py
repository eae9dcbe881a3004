"""The ranks of a run on this machine: how many there are, and torchrun's command line and environment for them."""

import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from configs import RunConfig, UserError, load_run
from configs.plugins import variables
from configs.process.environment import PRIVATE, check_process
from configs.process.gpus import gpus_to_use
from launcher.machine.cores import choose_binding, num_cores
from launcher.start.datasets import check_datasets
from trainer.runs.layout import LOGS
from trainer.runs.status import LAUNCH_ID

ENDED = "ended.json"
"""File in the private folder: how and when ranks of this machine ended that failed, by their numbers."""
TRACE = "nccl-trace-rank-"
"""Prefix of the files of NCCL's flight recorder; `torchfrtrace` reads them."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Node:
    """This machine's place in a job on several machines."""

    rank: int
    """From 0; node 0 hosts the rendezvous, holds the launch lock and writes what no rank can."""
    num_nodes: int
    host: str
    """Name or address by which the others reach node 0."""
    port: int
    interface: str | None
    """Network interface for gloo and NCCL; None lets them choose."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Job:
    """What is started on this machine."""

    run: RunConfig
    config: str
    overrides: Sequence[str]
    num_processes: int
    idle: str
    """A warning about idle GPUs; empty if all are used."""
    numa_binding: str | None
    fresh: bool
    reset: str | None
    """data, optimizer or data,optimizer: what ranks reset, until a checkpoint holds the result."""
    parent: str | None
    """RUN[@step] with whose weights the ranks begin, until there is a checkpoint."""
    node: Node | None
    """None for a job on this machine alone."""

    @property
    def folder(self) -> Path:
        """The run's."""
        return Path(self.run.folder)

    @property
    def logs(self) -> Path:
        """Folder of the ranks' logs; each of several nodes has its own."""
        return self.folder / LOGS if self.node is None else self.folder / LOGS / f"node-{self.node.rank}"


def make_job(
    *,
    config: str,
    overrides: Sequence[str],
    plugins: Sequence[str],
    nproc: int | None,
    fresh: bool,
    reset: str | None,
    parent: str | None,
    node: Node | None = None,
) -> Job:
    """What the arguments of `zeromt launch local` or `launch node` ask for, looked at as far as this is quick.

    Raises:
        UserError: the configuration or an argument is wrong, or the dataset is not prepared.
    """
    run = load_run(config, overrides, plugins=plugins)
    check_process(os.environ)
    check_datasets(run, config, overrides, plugins, parent=parent)
    nodes, lanes = 1 if node is None else node.num_nodes, run.stream.micro_batches
    if nodes > lanes:
        raise UserError(f"--nnodes: {nodes} is more than stream.micro_batches={lanes}; allowed is 1 to {lanes}")
    gpus = gpus_to_use(run.engine.device, os.environ)
    ranks = choose_processes(nproc, lanes, gpus=gpus, cores=num_cores(), nodes=nodes)
    return Job(
        run=run,
        config=config,
        overrides=overrides,
        num_processes=ranks,
        idle=describe_idle(gpus, ranks, lanes, nodes=nodes),
        numa_binding=choose_binding(run.engine.numa_binding, gpus=gpus),
        fresh=fresh,
        reset=reset,
        parent=parent,
        node=node,
    )


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
    """A warning about idle GPUs of this machine; empty if all are used."""
    if num_processes >= gpus:
        return ""
    few = num_processes == micro_batches // nodes
    most, more = ("stream.micro_batches=", nodes) if few else ("--nproc ", 1)
    now = micro_batches if few else num_processes
    return f"; {gpus - num_processes} of its {gpus} GPUs idle with {most}{now}, {most}{gpus * more} would use all"


def torchrun_command(job: Job, launch_id: str, private: Path, *, reset: str | None = None) -> list[str]:
    """torchrun's command line. On one machine nothing listens at a port, and rank 0 writes to the terminal.

    Args:
        job: what to start.
        launch_id: of this start, the same on all nodes.
        private: a folder of this machine that no other user can enter.
        reset: what the ranks reset.
    """
    node = job.node
    if node is None:
        # a file instead of a TCP store, which would listen at every address
        meeting = ["--rdzv-backend=c10d", f"--rdzv-endpoint={private}/rendezvous", "--rdzv-conf=store_type=file"]
        meeting += ["--local-addr=127.0.0.1"]
    else:
        meeting = ["--rdzv-backend=static", f"--node-rank={node.rank}", f"--nnodes={node.num_nodes}"]
        meeting += [f"--master-addr={node.host}", f"--master-port={node.port}"]
    return [
        *(sys.executable, "-m", "launcher.start.torchrun", f"{private}/{ENDED}"),
        *meeting,
        f"--rdzv-id={launch_id}",
        f"--nproc-per-node={job.num_processes}",
        "--max-restarts=0",
        *([f"--numa-binding={job.numa_binding}"] if job.numa_binding else []),
        *(
            [f"--shutdown-timeout={round(60 * job.run.supervision.save_minutes)}"]
            if _is_torchrun_option("--shutdown-timeout")
            else []
        ),
        f"--log-dir={job.logs}",
        *_log_options(job),
        *("-m", "trainer", _verbatim(job.config)),
        *(["--reset", reset] if reset else []),
        *([] if job.parent is None else ["--from", _verbatim(job.parent)]),
        *map(_verbatim, job.overrides),
    ]


def _is_torchrun_option(option: str) -> bool:
    """Whether this torch's torchrun has an option; importing it to ask would take seconds."""
    torch = importlib.util.find_spec("torch")
    assert torch is not None
    assert torch.origin is not None
    return option in Path(torch.origin).with_name("distributed").joinpath("run.py").read_text()


def _verbatim(argument: str) -> str:
    """An argument escaped for torchrun, which substitutes `$local_rank` and `$$`."""
    return argument.replace("$", "$$")


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


def child_environment(environ: Mapping[str, str], *, job: Job, launch_id: str, private: Path) -> dict[str, str]:
    """The environment of torchrun and the ranks; for the arguments see `torchrun_command`.

    PYTHONSAFEPATH keeps the current folder, where a user may have a `model/` or a `trainer.py`, off the path. PET_* are
    torchrun's options as variables.
    """
    child = {name: value for name, value in environ.items() if not name.startswith("PET_")}
    child.setdefault("TORCH_NCCL_DUMP_ON_TIMEOUT", "1")
    child.setdefault("TORCH_FR_DUMP_TEMP_FILE", str(private / TRACE))
    child.setdefault("OMP_NUM_THREADS", str(max(1, num_cores() // job.num_processes)))
    child |= {
        "PYTHONSAFEPATH": "1",
        "PYTHONUNBUFFERED": "1",
        LAUNCH_ID: launch_id,
        PRIVATE: str(private),
        **variables(job.config, job.run.plugins, job.folder),
    }
    if job.run.engine.device == "cpu":
        child["CUDA_VISIBLE_DEVICES"] = ""
    if job.node is None:
        child["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    else:
        child["TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"] = "rank ${rank}: "
        if job.node.interface is not None:
            child |= dict.fromkeys(("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"), job.node.interface)
    return child
