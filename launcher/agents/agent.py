"""The process between launcher and ranks: torchrun, with its output reduced to what a user needs.

Started as `python -m launcher.agents.agent ...` with torchrun's arguments, it is `torch.distributed.run` with these
differences:

- it dies with the launcher, and stops the ranks in good order first
- it prints only the first failure: the rank, its host, its error and its traceback, not torchrun's own forty lines
- it keeps a worker's exit code 2 or 75, which torchrun makes 1

The agents of a job on several nodes wait for one another and notice when one is lost: see `launcher.agents.peers`.
"""

import argparse
import atexit
import contextlib
import importlib
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from configs.process.kernel import PR_SET_PDEATHSIG, prctl
from configs.process.signals import AGENT_PID, GRACE_SECONDS, STOP_SIGNALS
from configs.process.streams import tell
from configs.process.terminal import filter_terminals
from configs.process.with_torch import collect_nothing, quick_imports
from launcher.agents.peers import LostError, Peers, join, note_loss
from launcher.agents.rendezvous import offer
from launcher.agents.root_cause import REFUSED, STOPPED, Ended, exit_code, note_ends, report, wait_for_others
from trainer.runs.failure import Failure, find_cause
from trainer.runs.layout import LOGS, STATUS_FILE
from trainer.runs.status import read_status, write_status

__all__ = ["ALONE", "LAUNCHER_PID", "REFUSED", "STOPPED", "main"]

LAUNCHER_PID = "ZEROMT_LAUNCHER_PID"
ALONE = 3
"""The agent's exit code when the other nodes did not come; trying again would only wait for them again."""
TORCHRUN_GRACE_SECONDS = 30
"""What torchrun gives ranks between SIGTERM and SIGKILL."""


def main(argv: Sequence[str]) -> int:
    """Run torchrun with these arguments until the ranks have ended.

    Returns:
        0; 2 or 75 when that is what a rank ended with; 128 + N after signal N; ALONE when the other nodes did not come;
        1 otherwise.
    """
    end_with_launcher()
    filter_terminals()
    atexit.register(collect_nothing)
    os.environ[AGENT_PID] = str(os.getpid())  # by it the ranks notice when they are orphaned
    if "LOGLEVEL" not in os.environ:  # torchrun's own switch
        logging.disable(logging.ERROR)
    with quick_imports():
        torchrun = importlib.import_module("torch.distributed.run")
    return _run_among_others(torchrun, torchrun.parse_args(list(argv)))


def _run_among_others(torchrun: ModuleType, arguments: argparse.Namespace) -> int:
    """Run torchrun; with several nodes, wait for the others first."""
    if arguments.nnodes == "1":
        alone = importlib.import_module("torch.distributed").HashStore()
        offer(alone, run_id=arguments.rdzv_id, rank=0, num_nodes=1, endpoint=("localhost", 0))
        return _run(torchrun, arguments, None)
    try:
        launcher = os.environ.get(LAUNCHER_PID)
        peers = join(arguments, run_folder(Path(arguments.log_dir)), int(launcher) if launcher else None)
    except LostError as error:
        note_loss(run_folder(Path(arguments.log_dir)), str(error))
        tell(f"zeromt: {error}")
        return ALONE
    offer(
        peers.connect_again(),
        run_id=arguments.rdzv_id,
        rank=int(arguments.node_rank),
        num_nodes=int(arguments.nnodes),
        endpoint=peers.endpoint,
    )
    code = 1
    try:
        code = _run(torchrun, arguments, peers)
    finally:
        peers.leave(code)
    return code


def _run(torchrun: ModuleType, arguments: argparse.Namespace, peers: Peers | None) -> int:
    """Run torchrun and report how its ranks ended."""
    multiprocessing = importlib.import_module("torch.distributed.elastic.multiprocessing")
    errors = importlib.import_module("torch.distributed.elastic.multiprocessing.errors")
    rendezvous = importlib.import_module("torch.distributed.elastic.rendezvous")
    context = importlib.import_module("torch.distributed.elastic.multiprocessing.api").SubprocessContext
    context._start = holding_stops(context._start)
    context.close = with_grace(context.close, float(os.environ.get(GRACE_SECONDS, TORCHRUN_GRACE_SECONDS)))
    try:
        torchrun.run(arguments)
    except errors.ChildFailedError as error:
        return _explain(error.failures, arguments, peers)
    except multiprocessing.SignalException as error:
        return 128 + int(error.sigval)
    except rendezvous.RendezvousError as error:  # with several nodes; the peers know why
        tell(f"zeromt: the nodes lost one another: {' '.join(str(error).split())}")
        return 1
    return 0


def holding_stops(start_ranks: Callable[[Any], None]) -> Callable[[Any], None]:
    """`start_ranks`, with requests to stop held back until all ranks are started and each can handle one.

    A rank that got SIGTERM in its first tenths of a second, before `StopRequest` has installed its handlers, would die,
    and the others would wait for it for as long as a save may take. So ranks start with these signals blocked; a
    pending one is delivered when `StopRequest` unblocks them. The agent's own handler raises: in the middle of the
    start it would leave unknown ranks behind.
    """

    def start(context: Any) -> None:
        held: list[int] = []
        handlers = {n: signal.signal(n, lambda number, _: held.append(number)) for n in STOP_SIGNALS}
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        try:
            start_ranks(context)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            for number, handler in handlers.items():
                signal.signal(number, handler)
        if held:  # another thread has taken it
            signal.raise_signal(held[0])

    return start


def with_grace(end_ranks: Callable[..., None], seconds: float) -> Callable[..., None]:
    """`end_ranks`, with so many seconds between SIGTERM and SIGKILL where the job is asked to stop: ranks save then.

    Whoever asks raises an exception in torchrun's loop. If a rank fails nothing is raised, and the others get no more
    than torchrun gives them: they wait for one that is gone. torchrun's own option for this, `--shutdown-timeout`, is
    not in every torch.
    """

    def end(context: Any, death_sig: signal.Signals | None = None, timeout: float = TORCHRUN_GRACE_SECONDS) -> None:
        end_ranks(context, death_sig, timeout if sys.exception() is None else seconds)

    return end


def _explain(failures: Mapping[int, Any], arguments: argparse.Namespace, peers: Peers | None) -> int:
    """Report what happened to the ranks of this machine, and on which machine it began.

    Args:
        failures: torchrun's, by rank.
        arguments: torchrun's.
        peers: the other machines; None if there are none.
    """
    folder, launch_id = run_folder(Path(arguments.log_dir)), arguments.rdzv_id
    logs = newest_logs(Path(arguments.log_dir), launch_id)
    ended = [
        Ended(
            rank=rank,
            code=failure.exitcode,
            seen=float(failure.timestamp),
            logs=logs / str(failure.local_rank) if logs else None,
            pid=failure.pid,
        )
        for rank, failure in sorted(failures.items())
    ]
    status = read_status(folder / STATUS_FILE, launch_id)
    code = exit_code(ended, status)
    notes: dict[int, Failure] = {}
    lost = None
    if code == 1:
        notes = note_ends(ended, folder, launch_id)
        if peers is not None:
            notes = wait_for_others(notes, folder, launch_id)
            lost = peers.lost()
        if status is None or not status.is_settled:
            with contextlib.suppress(OSError):  # a full disk: the lines below say it too
                error = lost or str(find_cause(notes) or "the ranks were killed")
                write_status(folder, "failed", exit_code=1, error=error, launch_id=launch_id, is_cause=True)
    lines = report(ended, notes, status, lost)
    for line in lines:
        tell(line)
    if peers is not None and lines:
        peers.say(lines[0].removeprefix("zeromt: "))
    return code


def newest_logs(folder: Path, launch_id: str) -> Path | None:
    """torchrun's folder with the logs of the last attempt of this start, by rank of this node."""
    attempts = sorted(folder.glob(f"{launch_id}_*/attempt_*"))
    return attempts[-1] if attempts else None


def run_folder(logs: Path) -> Path:
    """The run's folder: it holds `logs/`, or `logs/node-N/` for one of several nodes."""
    return logs.parent if logs.name == LOGS else logs.parent.parent


def end_with_launcher() -> None:
    """Receive SIGTERM when the launcher dies, as if the run had been stopped: the ranks save and end."""
    launcher = os.environ.get(LAUNCHER_PID)
    if launcher is None:
        return
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != int(launcher):  # it died before the line above
        sys.exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
