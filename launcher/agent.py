"""The process between the launcher and the ranks: torchrun, its noise turned into what a user needs to know.

Started as `python -m launcher.agent ...` with torchrun's arguments, it is `torch.distributed.run` but for
this: it ends, and with it in good order the ranks, when the launcher is killed; its log lines and
tracebacks, forty lines around one of a worker, give way to the rank that failed first, its host, its error and its
traceback; and a worker's exit code 2 or 75 is passed on instead of becoming 1.
"""

import ctypes
import importlib
import logging
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from launcher.root_cause import REFUSED, STOPPED, Ended, exit_code, note_ends, report, wait_for_others
from trainer.supervision.signals import AGENT_PID
from trainer.supervision.status import STATUS_FILE, read_status

__all__ = ["LAUNCHER_PID", "REFUSED", "STOPPED", "main"]

LAUNCHER_PID = "ZEROMT_LAUNCHER_PID"
_PR_SET_PDEATHSIG = 1


def main(argv: Sequence[str]) -> int:
    """Run torchrun with these arguments until the ranks have ended.

    Returns:
        0; 2 or 75 when that is what a rank ended with; 128 + N after signal N; 1 otherwise.
    """
    end_with_launcher()
    os.environ[AGENT_PID] = str(os.getpid())  # by which the ranks know when they are orphans
    if "LOGLEVEL" not in os.environ:  # torchrun's own switch
        logging.disable(logging.ERROR)
    torchrun = importlib.import_module("torch.distributed.run")
    multiprocessing = importlib.import_module("torch.distributed.elastic.multiprocessing")
    errors = importlib.import_module("torch.distributed.elastic.multiprocessing.errors")
    arguments = torchrun.parse_args(list(argv))
    try:
        torchrun.run(arguments)
    except errors.ChildFailedError as error:
        return _explain(error.failures, arguments)
    except multiprocessing.SignalException as error:
        return 128 + int(error.sigval)
    return 0


def _explain(failures: dict[int, Any], arguments: Any) -> int:
    """Say what happened to the ranks of this machine, and on which other it began.

    Args:
        failures: torchrun's, by rank.
        arguments: torchrun's.
    """
    folder, launch_id = Path(arguments.log_dir).parent, arguments.rdzv_id
    ended = [
        Ended(rank=rank, code=failure.exitcode, seen=float(failure.timestamp), logs=_logs(failure.error_file))
        for rank, failure in sorted(failures.items())
    ]
    status = read_status(folder / STATUS_FILE, launch_id)
    code = exit_code(ended, status)
    notes = {}
    if code == 1:
        notes = note_ends(ended, folder, launch_id)
        if arguments.nnodes != "1":
            notes = wait_for_others(notes, folder, launch_id)
    for line in report(ended, notes, status):
        print(line, file=sys.stderr, flush=True)
    return code


def _logs(error_file: str) -> Path | None:
    """The folder of a rank's logs, in which torchrun names it a file for its error; None where it writes no log."""
    folder = Path(error_file).parent
    return folder if (folder / "stderr.log").is_file() else None


def end_with_launcher() -> None:
    """Receive SIGTERM when the launcher dies, as if someone had stopped the run: the ranks save and end."""
    launcher = os.environ.get(LAUNCHER_PID)
    if launcher is None:
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))
    if os.getppid() != int(launcher):  # it died before the line above
        sys.exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
