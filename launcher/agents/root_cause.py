"""Finds which rank of a job failed first, on any of its machines, and reports it."""

import signal
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from configs.process.files.inside import read_text
from trainer.runs.failure import Failure, find_cause, leave_note, read_failures
from trainer.runs.layout import STUCK_FILE
from trainer.runs.status import EXIT_CODES, Status

REFUSED, STOPPED = EXIT_CODES["refused"], EXIT_CODES["stopped"]
_POLL_SECONDS = 1.5
"""Seconds within which torchrun notices the end of a rank; it reports whole seconds."""
_OTHERS_SECONDS = 5.0
"""Seconds to wait for notes of other machines."""
_LOOK_SECONDS = 0.1
_TAIL_LINES = 20
_STACK_LINES = 80


@dataclass(kw_only=True, slots=True, frozen=True)
class Ended:
    """A rank of this machine that failed, according to torchrun."""

    rank: int
    code: int
    """Exit code, or minus the number of the signal that killed it."""
    seen: float
    """Seconds since the epoch."""
    logs: Path | None
    """Folder of its stderr.log, which does not exist if the rank writes to the terminal."""
    pid: int = 0

    def tail(self) -> list[str]:
        """The lines of its log."""
        if self.logs is None:
            return []
        try:
            return read_text(self.logs / "stderr.log", errors="replace", most=None).splitlines()
        except OSError:
            return []


def exit_code(ended: Sequence[Ended], status: Status | None) -> int:
    """The exit code of a start: 2 or 75 if rank 0 wrote so or a rank ended so; else 1.

    Args:
        ended: the ranks of this machine.
        status: written during this start. It counts more than exit codes, which a late signal may have changed.
    """
    codes = [rank.code for rank in ended]
    if status is not None and status.is_settled:
        codes.append(status.exit_code)
    return next((code for code in (REFUSED, STOPPED) if code in codes), 1)


def note_ends(ended: Sequence[Ended], folder: Path, launch_id: str) -> dict[int, Failure]:
    """Write notes for ranks that could not, for the other machines.

    Args:
        ended: the ranks of this machine.
        folder: the run's.
        launch_id: the launch that they are about.

    Returns:
        All notes, including those of other machines.
    """
    notes = read_failures(folder, launch_id)
    for rank in ended:
        # torchrun kills the others by SIGTERM, so that is no cause.
        if rank.rank in notes or rank.code == -signal.SIGTERM:
            continue
        how = f"killed by {signal.Signals(-rank.code).name}" if rank.code < 0 else f"ended with exit code {rank.code}"
        stuck = _stuck_line(folder, rank.rank)
        failure = Failure(
            rank=rank.rank,
            host=socket.gethostname(),
            time=rank.seen - _POLL_SECONDS,
            message=f"{how}: {stuck}" if stuck else how,
        )
        leave_note(folder, launch_id, failure)
        notes[rank.rank] = failure
    return notes


def _stuck_line(folder: Path, rank: int) -> str | None:
    """The message of the rank's watchdog."""
    try:
        lines = read_text(folder / STUCK_FILE, errors="replace").splitlines()
    except OSError:
        return None
    mark = f"zeromt: rank {rank} is "
    return next((line.removeprefix(mark) for line in reversed(lines) if line.startswith(mark)), None)


def wait_for_others(notes: Mapping[int, Failure], folder: Path, launch_id: str) -> dict[int, Failure]:
    """The notes, after giving a machine that failed earlier time to write its own."""
    deadline = time.monotonic() + _OTHERS_SECONDS
    mine = find_cause(notes)
    while True:
        all_notes = {**notes, **read_failures(folder, launch_id)}
        cause = find_cause(all_notes)
        if (cause is not None and cause != mine) or time.monotonic() >= deadline:
            return all_notes
        time.sleep(_LOOK_SECONDS)


def report(
    ended: Sequence[Ended], notes: Mapping[int, Failure], status: Status | None, lost: str | None = None
) -> list[str]:
    """Lines for the terminal after a failure: the cause, the ranks that failed because of it, then details.

    Args:
        ended: the ranks of this machine.
        notes: of the ranks that failed, on all machines.
        status: written during this start.
        lost: the message that another node is gone, if one is; its ranks could not report.
    """
    code = exit_code(ended, status)
    if code == STOPPED:
        return []
    if code == REFUSED:
        return _refusal(ended, status)
    here = {rank.rank: rank for rank in ended}
    if lost is not None:
        return [f"zeromt: {lost}", f"zeromt: stopped because of it: rank {_list({*here, *notes})}"]
    cause = find_cause(notes)
    if cause is None:  # all were killed by SIGTERM, but not by torchrun
        first = min(ended, key=lambda rank: (rank.seen, rank.rank))
        cause = Failure(rank=first.rank, host=socket.gethostname(), time=first.seen, message="killed by SIGTERM")
    lines = [f"zeromt: rank {cause.rank} on {cause.host} failed first: {cause.first_line}"]
    if peers := {*here, *notes} - {cause.rank}:
        lines.append(f"zeromt: stopped because of it: rank {_list(peers)}")
    return lines + _details(cause, here.get(cause.rank))


def _list(ranks: set[int]) -> str:
    return ", ".join(map(str, sorted(ranks)))


def _refusal(ended: Sequence[Ended], status: Status | None) -> list[str]:
    """The lines of a refusal, if rank 0 has not shown them on the terminal itself."""
    writer = status.pid if status is not None and status.exit_code == REFUSED else None
    if any(rank.rank == 0 and (rank.code == REFUSED or rank.pid == writer) for rank in ended):
        return []  # a late signal may have given it another code
    for rank in ended:
        said = [line for line in rank.tail() if line.startswith("zeromt: error: ")]
        if rank.code == REFUSED and said:
            return said
    if status is not None and status.state == "refused" and status.error:
        return [f"zeromt: error: {line}" for line in status.error.splitlines()]
    return [f"zeromt: error: rank {rank.rank} refused to start; its log: {rank.logs}" for rank in ended[:1]]


def _details(cause: Failure, rank: Ended | None) -> list[str]:
    """The traceback, or the end of the log if there is none; empty if the message says everything."""
    lines: list[str] = []
    if cause.says_all:
        return lines
    if cause.traceback:
        lines = ["zeromt: its traceback:", *(f"    {line}" for line in cause.traceback.rstrip().splitlines())]
    elif rank is not None and rank.logs is not None and (tail := rank.tail()):
        is_stuck = any(line.startswith(f"zeromt: rank {cause.rank} is stuck") for line in tail)
        shown = tail[-(_STACK_LINES if is_stuck else _TAIL_LINES) :]
        lines = [f"zeromt: the end of {rank.logs / 'stderr.log'}:", *(f"    {line}" for line in shown)]
    return lines
