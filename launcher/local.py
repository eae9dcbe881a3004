"""`zeromt launch local`: torchrun on this machine, and the ranks' real outcome as exit code."""

import contextlib
import os
import shlex
import signal
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from configs import RunConfig, UserError, load_run
from launcher.agent import LAUNCHER_PID, REFUSED, STOPPED
from launcher.hardware import num_cores, num_gpus
from launcher.restarts import Restarts
from launcher.run_folder import make_ready, newest_step
from launcher.supervise import Supervisor
from trainer.supervision.run_lock import LAUNCH_LOCK, RunLock
from trainer.supervision.signals import GRACE_SECONDS, STOP_FILE
from trainer.supervision.status import LAUNCH_ID, STATUS_FILE, Status, read_status, write_status
from trainer.supervision.watchdog import STUCK_FILE

# SIGUSR1, the usual warning of a batch system, would otherwise kill the agent and orphan the ranks.
SIGNALS = "SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1"
# A save must fit between the signal and the agent's SIGKILL, and so must a collective that will time out.
SHORTEST_SHUTDOWN_SECONDS = 600
PATIENCE_WITH_THE_ENDING, PATIENCE_WITH_THE_RUNNING = 15.0, 1.0
"""Seconds to wait for the job before: one that is done needs some to end its processes."""


@dataclass(kw_only=True, slots=True, frozen=True)
class LocalJob:
    """What is started, once for every attempt."""

    config: str
    overrides: tuple[str, ...]
    num_processes: int
    folder: Path
    """The run's."""
    shutdown_seconds: int
    reset: str | None = None
    """data, optimizer or data,optimizer: begun anew by the ranks, until a checkpoint holds the result."""

    @property
    def logs(self) -> Path:
        """Folder of the ranks' logs."""
        return self.folder / "logs"


def launch(
    supervisor: Supervisor,
    *,
    config: str,
    nproc: int | None,
    max_restarts: int,
    overrides: Sequence[str],
    fresh: bool = False,
    reset: str | None = None,
) -> int:
    """Train on this machine.

    Args:
        supervisor: runs the ranks; its signal handlers are in place.
        config: a YAML file, or the name of a shipped run.
        nproc: processes; None takes one for each GPU, else for each core, up to stream.micro_batches.
        max_restarts: times that the ranks are started again after failures, counted anew with every new checkpoint.
        overrides: `section.key=value` settings.
        fresh: begin at step 0, and rename the run that is there.
        reset: data, optimizer or data,optimizer: begin these anew with the weights of the newest checkpoint.

    Returns:
        0 finished; 2 refused by the ranks; 75 stopped on request after a complete save; 1 anything else.

    Raises:
        UserError: the configuration or the number of processes is wrong, the dataset is not prepared, or another job
            writes the run.
    """
    run = load_run(config, overrides)
    check_datasets(run, config, overrides)
    cores = num_cores()
    job = LocalJob(
        config=config,
        overrides=tuple(overrides),
        num_processes=choose_processes(nproc, run.stream.micro_batches, gpus=num_gpus(os.environ), cores=cores),
        folder=Path(run.folder),
        shutdown_seconds=max(SHORTEST_SHUTDOWN_SECONDS, round(60 * run.engine.communication_timeout_minutes)),
        reset=reset,
    )
    make_ready(run.folder, fresh=fresh)
    try:
        job.logs.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"output: {str(job.logs)!r} cannot be made: {error.strerror}; allowed is a folder to write in"
        ) from error
    lock = RunLock(job.folder, LAUNCH_LOCK)
    before = read_status(job.folder / STATUS_FILE)
    is_running = before is not None and before.state == "running"
    lock.acquire(patience_seconds=PATIENCE_WITH_THE_RUNNING if is_running else PATIENCE_WITH_THE_ENDING)
    others = f"; logs of the others than rank 0: {job.logs}" if job.num_processes > 1 else ""
    _say(f"{job.num_processes} process{'es' * (job.num_processes > 1)} on this machine{others}")
    try:
        return _attempts(job, supervisor, cores, max_restarts)
    finally:
        lock.release()


def _attempts(job: LocalJob, supervisor: Supervisor, cores: int, max_restarts: int) -> int:
    """Start the ranks, and again when they fail. torchrun's own restarts would repeat a refusal or a stop."""
    first_step = newest_step(job.folder)
    restarts = Restarts(max_restarts, first_step)
    while True:
        code = _attempt(job, supervisor, cores, reset=job.reset if newest_step(job.folder) == first_step else None)
        if code != 1 or supervisor.was_stopped:
            return code
        if (job.folder / STOP_FILE).exists():
            _say(f"the ranks failed, and {job.folder / STOP_FILE} asks to stop: they are not started again")
            (job.folder / STOP_FILE).unlink(missing_ok=True)
            return code
        if not restarts.may_follow(newest_step(job.folder)):
            if restarts.limit:
                _say(
                    f"no progress since step {restarts.step}: the ranks failed {restarts.num_failures} times "
                    "without a new checkpoint; given up"
                )
            return code
        number = f"restart {restarts.num_failures} of {restarts.limit}"
        _say(f"the ranks failed; {number} since step {restarts.step}, from the newest checkpoint")


def _attempt(job: LocalJob, supervisor: Supervisor, cores: int, *, reset: str | None) -> int:
    """Start the ranks and wait for their end."""
    launch_id = f"{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:8]}"
    environment = child_environment(
        os.environ,
        num_processes=job.num_processes,
        cores=cores,
        launch_id=launch_id,
        launcher_pid=os.getpid(),
        grace_seconds=job.shutdown_seconds,
    )
    stuck = job.folder / STUCK_FILE
    with contextlib.suppress(OSError):
        stuck.unlink(missing_ok=True)
    agent_code = supervisor.run(torchrun_command(job, launch_id, reset=reset), environment)
    status = read_status(job.folder / STATUS_FILE, launch_id)
    code = outcome(status, agent_code, was_stopped=supervisor.was_stopped)
    if code == 1 and (status is None or status.state == "running"):
        by = f"torchrun was killed by {signal.Signals(-agent_code).name}" if agent_code < 0 else "the ranks were killed"
        error = _last_line(stuck) or f"{by}; logs: {job.logs}"
        with contextlib.suppress(OSError):  # a full disk: the exit code says it too
            write_status(job.folder, "failed", exit_code=1, error=error, launch_id=launch_id)
    return code


def _last_line(path: Path) -> str | None:
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return None
    return lines[-1] if lines else None


def check_datasets(run: RunConfig, config: str, overrides: Sequence[str]) -> None:
    """Refuse to start without the prepared datasets.

    Raises:
        UserError: one has no index.
    """
    for source in run.datasets:
        if "://" not in source.path and not (Path(source.path) / "index.json").is_file():
            key = "stream.datasets" if run.stream.datasets else "prepare.output"
            command = shlex.join(["zeromt", "prepare", config, *(o for o in overrides if o.startswith("prepare."))])
            raise UserError(
                f"{key}: {source.path!r} holds no index.json; allowed is a prepared dataset: run `{command}` first"
            )


def choose_processes(requested: int | None, micro_batches: int, *, gpus: int, cores: int) -> int:
    """How many ranks to start.

    Args:
        requested: as the user said; None stands for auto.
        micro_batches: K, the lanes of the stream; a rank without one would have nothing to do.
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


def torchrun_command(
    job: LocalJob, launch_id: str, *, reset: str | None = None, python: str = sys.executable
) -> list[str]:
    """The child's command line.

    A rendezvous on port 0 takes a free port, so that jobs side by side do not meet. Rank 0 writes to the
    terminal, the others to files below the run's folder.
    """
    return [
        python,
        "-m",
        "launcher.agent",
        "--nnodes=1",
        f"--nproc-per-node={job.num_processes}",
        "--rdzv-backend=c10d",
        "--rdzv-endpoint=localhost:0",
        f"--rdzv-id={launch_id}",
        "--local-addr=localhost",
        "--max-restarts=0",
        f"--signals-to-handle={SIGNALS}",
        f"--shutdown-timeout={job.shutdown_seconds}",
        f"--log-dir={job.logs}",
        *_log_options(job.num_processes),
        "-m",
        "trainer",
        job.config,
        *(["--reset", reset] if reset else []),
        *job.overrides,
    ]


def _log_options(num_processes: int) -> list[str]:
    """Which ranks write where. torchrun's map takes single digits only; beyond them, rank 0 is copied."""
    if num_processes == 1:
        return []
    if num_processes <= 10:
        return ["--redirects=" + ",".join(f"{rank}:3" for rank in range(1, num_processes))]
    return ["--redirects=3", "--tee=0:3"]


def child_environment(
    environ: Mapping[str, str],
    *,
    num_processes: int,
    cores: int,
    launch_id: str,
    launcher_pid: int,
    grace_seconds: int,
) -> dict[str, str]:
    """The environment of the agent and the ranks.

    PYTHONSAFEPATH keeps the current folder, where a user may have a `model/` or a `trainer.py`, off the path;
    an empty entry of PYTHONPATH must not bring it back. PET_* are torchrun's options in another guise.
    """
    child = {name: value for name, value in environ.items() if not name.startswith("PET_")}
    paths = [p for p in child.pop("PYTHONPATH", "").split(os.pathsep) if p not in ("", ".", "./")]
    if paths:
        child["PYTHONPATH"] = os.pathsep.join(paths)
    child.setdefault("OMP_NUM_THREADS", str(max(1, cores // num_processes)))
    child |= {
        "PYTHONSAFEPATH": "1",
        "PYTHONUNBUFFERED": "1",
        LAUNCH_ID: launch_id,
        LAUNCHER_PID: str(launcher_pid),
        GRACE_SECONDS: str(grace_seconds),
    }
    return child


def outcome(status: Status | None, agent_code: int, *, was_stopped: bool) -> int:
    """The launcher's exit code.

    Args:
        status: what rank 0 wrote during this launch.
        agent_code: the agent's exit code. torchrun knows of its workers little more than whether they failed.
        was_stopped: whether a signal asked the launcher to stop.
    """
    if status is not None and status.is_settled:
        return status.exit_code
    if agent_code in (REFUSED, STOPPED):
        return agent_code
    if status is None and was_stopped:
        return STOPPED  # the ranks had not begun: nothing was lost, and the same command starts them again
    return 0 if agent_code == 0 and status is None else 1


def _say(line: str) -> None:
    print(f"zeromt: {line}", file=sys.stderr, flush=True)
