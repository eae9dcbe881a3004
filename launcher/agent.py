"""The process between the launcher and the ranks: torchrun, its noise turned into what a user needs to know.

Started as `python -m launcher.agent ...` with torchrun's arguments, it is `torch.distributed.run` but for
this: it ends, and with it in good order the ranks, when the launcher is killed; its log lines and
tracebacks, forty lines around one of a worker, give way to the rank that failed first and the end of that
rank's log; and a worker's exit code 2 or 75 is passed on instead of becoming 1. Of a job on several nodes, the
agents wait for one another and notice when one is lost: see `launcher.peers`.
"""

import argparse
import ctypes
import importlib
import json
import logging
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from launcher.peers import LostError, Peers, join, note_loss
from trainer.supervision.signals import AGENT_PID
from trainer.supervision.status import STATUS_FILE, read_status

LAUNCHER_PID = "ZEROMT_LAUNCHER_PID"
REFUSED, STOPPED = 2, 75
ALONE = 3
"""The agent's exit code when the other nodes did not come; trying again would only wait for them again."""
_PR_SET_PDEATHSIG = 1
_TAIL_LINES = 20
_STACK_LINES = 80
_POLL_SECONDS = 1.5
"""torchrun notices an end so late at most, and gives it in whole seconds."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Note:
    """What a rank wrote when an error ended it."""

    time: float
    """Seconds since the epoch."""
    message: str


def main(argv: Sequence[str]) -> int:
    """Run torchrun with these arguments until the ranks have ended.

    Returns:
        0; 2 or 75 when that is what a rank ended with; 128 + N after signal N; ALONE when the other nodes did not come;
        1 otherwise.
    """
    end_with_launcher()
    os.environ[AGENT_PID] = str(os.getpid())  # by which the ranks know when they are orphans
    if "LOGLEVEL" not in os.environ:  # torchrun's own switch
        logging.disable(logging.ERROR)
    torchrun = importlib.import_module("torch.distributed.run")
    arguments = torchrun.parse_args(list(argv))
    if arguments.nnodes == "1":
        return _run(torchrun, arguments, None)
    try:
        launcher = os.environ.get(LAUNCHER_PID)
        peers = join(arguments, run_folder(Path(arguments.log_dir)), int(launcher) if launcher else None)
    except LostError as error:
        note_loss(run_folder(Path(arguments.log_dir)), str(error))
        print(f"zeromt: {error}", file=sys.stderr, flush=True)
        return ALONE
    code = 1
    try:
        code = _run(torchrun, arguments, peers)
    finally:
        peers.leave(code)
    return code


def _run(torchrun: ModuleType, arguments: argparse.Namespace, peers: Peers | None) -> int:
    """Run torchrun and say what became of its ranks."""
    multiprocessing = importlib.import_module("torch.distributed.elastic.multiprocessing")
    errors = importlib.import_module("torch.distributed.elastic.multiprocessing.errors")
    rendezvous = importlib.import_module("torch.distributed.elastic.rendezvous")
    try:
        torchrun.run(arguments)
    except errors.ChildFailedError as error:
        codes = {rank: failure.exitcode for rank, failure in error.failures.items()}
        seen = {rank: float(failure.timestamp) for rank, failure in error.failures.items()}
        offset = next(rank - failure.local_rank for rank, failure in error.failures.items())
        folder = Path(arguments.log_dir) if arguments.log_dir else None
        logs = newest_logs(folder, arguments.rdzv_id) if folder else None
        notes = read_notes(logs, offset) if logs else {}
        status = read_status(run_folder(folder) / STATUS_FILE, arguments.rdzv_id) if folder else None
        if status is not None and status.exit_code in (REFUSED, STOPPED):
            codes[0] = status.exit_code  # a signal in its last moment may have given it another
        lines = report(find_cause(codes, seen, notes), codes, logs, notes, offset)
        for line in lines:
            print(line, file=sys.stderr, flush=True)
        if peers is not None and lines:
            peers.say(lines[0].removeprefix("zeromt: "))
        return next((code for code in (REFUSED, STOPPED) if code in codes.values()), 1)
    except multiprocessing.SignalException as error:
        return 128 + int(error.sigval)
    except rendezvous.RendezvousError as error:  # of several nodes; why, the peers know
        print(f"zeromt: the nodes lost one another: {' '.join(str(error).split())}", file=sys.stderr, flush=True)
        return 1
    return 0


def run_folder(logs: Path) -> Path:
    """The run's folder: it holds `logs/`, or `logs/node-N/` for one of several nodes."""
    return logs.parent if logs.name == "logs" else logs.parent.parent


def end_with_launcher() -> None:
    """Receive SIGTERM when the launcher dies, as if someone had stopped the run: the ranks save and end."""
    launcher = os.environ.get(LAUNCHER_PID)
    if launcher is None:
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))
    if os.getppid() != int(launcher):  # it died before the line above
        sys.exit(1)


def newest_logs(folder: Path, launch_id: str) -> Path | None:
    """The folder in which torchrun keeps the logs of the last attempt of this launch, by rank."""
    attempts = sorted(folder.glob(f"{launch_id}_*/attempt_*"))
    return attempts[-1] if attempts else None


def read_notes(logs: Path, offset: int = 0) -> dict[int, Note]:
    """The notes of the ranks that ended by an error of their own, by rank; `offset` is that of this node's first."""
    notes = {}
    for path in logs.glob("*/error.json"):
        try:
            tree = json.loads(path.read_text(encoding="utf-8"))
            notes[offset + int(path.parent.name)] = Note(
                time=float(tree["time"]), message=str(tree["message"]["message"])
            )
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return notes


def find_cause(codes: Mapping[int, int], seen: Mapping[int, float], notes: Mapping[int, Note]) -> int:
    """The rank that failed first; the others fail when they miss it.

    Args:
        codes: the exit codes of all that failed, minus the signal's number for one killed by a signal.
        seen: when torchrun noticed each; seconds since the epoch.
        notes: of the ranks that ended by an error; a killed rank leaves none.
    """

    def when(rank: int) -> float:
        if rank in notes:
            return notes[rank].time
        # torchrun ends the others by SIGTERM: no cause, unless there is nothing else.
        return seen[rank] - _POLL_SECONDS if codes[rank] != -signal.SIGTERM else float("inf")

    return min({**codes, **notes}, key=lambda rank: (when(rank), rank))


def report(
    cause: int, codes: Mapping[int, int], logs: Path | None, notes: Mapping[int, Note], offset: int = 0
) -> list[str]:
    """Lines for the terminal after ranks failed.

    Rank 0 writes to the terminal itself; of another rank nothing was seen there yet.

    Args:
        cause: the rank that failed first.
        codes: the exit codes of all that failed, minus the signal's number for one killed by a signal.
        logs: folder of this node's ranks' logs, by rank on it.
        notes: of the ranks that ended by an error.
        offset: the rank of this node's first.
    """
    if codes.get(0) in (REFUSED, STOPPED):
        return []
    culprit = next((rank for rank, code in codes.items() if code == REFUSED), cause)
    code = codes.get(culprit, 1)
    if code == STOPPED:
        return []
    log = logs / str(culprit - offset) / "stderr.log" if logs and culprit else None
    tail = log.read_text(errors="replace").splitlines() if log and log.is_file() else []
    if code == REFUSED:
        said = [line for line in tail if line.startswith("zeromt: error: ")]
        return said or [f"zeromt: error: rank {culprit} refused to start; its log: {log}"]
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    reason = f": {notes[culprit].message.splitlines()[0]}" if culprit in notes else ""
    peers = sorted(set(codes) - {culprit})
    lines = [f"zeromt: rank {culprit} failed first: it {how}{reason}"]
    if peers:
        lines.append(f"zeromt: stopped because of it: rank {', '.join(map(str, peers))}")
    if tail:
        is_stuck = any(line.startswith(f"zeromt: rank {culprit} is stuck") for line in tail)
        shown = tail[-(_STACK_LINES if is_stuck else _TAIL_LINES) :]
        lines += [f"zeromt: the end of {log}:", *(f"    {line}" for line in shown)]
    return lines


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
