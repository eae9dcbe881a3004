"""The process between the launcher and the ranks: torchrun, its noise turned into what a user needs to know.

Started as `python -m launcher.agent ...` with torchrun's arguments, it is `torch.distributed.run` but for
this: it ends, and with it in good order the ranks, when the launcher is killed; its log lines and
tracebacks, forty lines around one of a worker, give way to the rank that failed first and the end of that
rank's log; and a worker's exit code 2 or 75 is passed on instead of becoming 1.
"""

import ctypes
import importlib
import logging
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

LAUNCHER_PID = "ZEROMT_LAUNCHER_PID"
REFUSED, STOPPED = 2, 75
_PR_SET_PDEATHSIG = 1
_TAIL_LINES = 20


def main(argv: Sequence[str]) -> int:
    """Run torchrun with these arguments until the ranks have ended.

    Returns:
        0; 2 or 75 when that is what a rank ended with; 128 + N after signal N; 1 otherwise.
    """
    end_with_launcher()
    if "LOGLEVEL" not in os.environ:  # torchrun's own switch
        logging.disable(logging.ERROR)
    torchrun = importlib.import_module("torch.distributed.run")
    multiprocessing = importlib.import_module("torch.distributed.elastic.multiprocessing")
    errors = importlib.import_module("torch.distributed.elastic.multiprocessing.errors")
    arguments = torchrun.parse_args(list(argv))
    try:
        torchrun.run(arguments)
    except errors.ChildFailedError as error:
        codes = {rank: failure.exitcode for rank, failure in error.failures.items()}
        first, _ = error.get_first_failure()
        logs = newest_logs(Path(arguments.log_dir), arguments.rdzv_id) if arguments.log_dir else None
        for line in report(first, codes, logs):
            print(line, file=sys.stderr, flush=True)
        return next((code for code in (REFUSED, STOPPED) if code in codes.values()), 1)
    except multiprocessing.SignalException as error:
        return 128 + int(error.sigval)
    return 0


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


def report(first: int, codes: Mapping[int, int], logs: Path | None) -> list[str]:
    """Lines for the terminal after ranks failed.

    Rank 0 writes to the terminal itself; of another rank nothing was seen there yet.

    Args:
        first: the rank that failed first.
        codes: the exit codes of all that failed, minus the signal's number for one killed by a signal.
        logs: folder of the ranks' logs, by rank.
    """
    if codes.get(0) in (REFUSED, STOPPED):
        return []
    culprit = next((rank for rank, code in codes.items() if code == REFUSED), first)
    code = codes[culprit]
    if code == STOPPED:
        return []
    log = logs / str(culprit) / "stderr.log" if logs and culprit else None
    tail = log.read_text(errors="replace").splitlines() if log and log.is_file() else []
    if code == REFUSED:
        said = [line for line in tail if line.startswith("zeromt: error: ")]
        return said or [f"zeromt: error: rank {culprit} refused to start; its log: {log}"]
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    peers = sorted(set(codes) - {culprit})
    lines = [f"zeromt: rank {culprit} failed first: it {how}"]
    if peers:
        lines.append(f"zeromt: stopped because of it: rank {', '.join(map(str, peers))}")
    if tail:
        lines += [f"zeromt: the end of {log}:", *(f"    {line}" for line in tail[-_TAIL_LINES:])]
    return lines


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
