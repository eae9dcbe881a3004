"""Notes that ranks write when they fail, by which the cause is told from its victims on all machines of the job.

    failures/LAUNCH/rank-3.json     in the run's folder: rank, host, time, message, traceback

The rank with the earliest note is the cause: the others fail because it is gone. Does not import torch.
"""

import json
import linecache
import os
import re
import socket
import time
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from configs import UserError
from configs.process.files import describe
from configs.process.files.inside import look_again, read_json, read_text, write_text
from configs.process.streams import hidden
from trainer.runs.layout import FAILURES
from trainer.runs.status import LAUNCH_ID, known

STACKS = ".stacks"
"""How the names of files end that ranks which hang write their stacks to."""
_MESSAGES = re.compile(r"/torch/distributed/|/deepspeed/comm/")
"""In the path of code in which a rank waits for others; elsewhere it does in a line that calls `wait`."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Failure:
    """The end of a rank, by an error of its own or by a kill."""

    rank: int
    host: str
    time: float
    """Seconds since the epoch."""
    message: str
    traceback: str = ""
    says_all: bool = False
    """Whether the message says everything; see `says_all`."""

    @property
    def first_line(self) -> str:
        """First line of the message."""
        return self.message.partition("\n")[0].strip()

    def __str__(self) -> str:
        return f"rank {self.rank} on {self.host}: {self.first_line}"


def note_failure(error: BaseException, folder: Path, rank: int) -> bool:
    """Record the error that ends this rank in the run's folder, before anything that may take time.

    Returns:
        Whether there is a launcher that will find the note, and so show the traceback.
    """
    failure = Failure(
        rank=rank,
        host=socket.gethostname(),
        time=time.time(),
        message=message_of(error),
        traceback="" if says_all(error) else hidden("".join(traceback.format_exception(error))),
        says_all=says_all(error),
    )
    launch_id = os.environ.get(LAUNCH_ID)
    return launch_id is not None and leave_note(folder, launch_id, failure)


def message_of(error: BaseException) -> str:
    """An error's class and message; for an error of the operating system the file it names and what to do; for a
    `UserError` the message alone.
    """
    if isinstance(error, UserError):
        return hidden(str(error))
    if isinstance(error, OSError) and error.errno is not None:
        return hidden(describe(error))
    return hidden(f"{type(error).__name__}: {error}")


def leave_note(folder: Path, launch_id: str, failure: Failure) -> bool:
    """Write a note; False if that fails.

    Args:
        folder: the run's.
        launch_id: the launch that it is about.
        failure: what happened.
    """
    path = folder / FAILURES / launch_id / f"rank-{failure.rank}.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, json.dumps(asdict(failure)) + "\n")
    except OSError:
        return False
    return True


def stacks_name(rank: int, activity: str, step: int, minutes: float) -> str:
    """The name of a rank's file while it is in an activity, of an update (0: none), with a limit."""
    return f"{rank}_{activity}_{step}_{minutes:g}{STACKS}"


def find_stuck_ranks(folder: Path) -> Iterator[tuple[Path, Failure]]:
    """The files of ranks of this machine that have exceeded a limit, with what is to be said of each.

    Ranks that wait for a hung one hang too. A rank that does not wait has failed since its activity began, so that it
    comes first.
    """
    for path in sorted(folder.glob(f"*{STACKS}")):
        if stacks := read_text(path, errors="replace"):
            rank, activity, step, minutes = path.name.removesuffix(STACKS).split("_")
            *_, main = stacks.split("\n\n")  # the thread that is the oldest
            place = re.search(r'File "(.+)", line (\d+)', main)
            waits = place is not None and (
                bool(_MESSAGES.search(place[1])) or ".wait()" in linecache.getline(place[1], int(place[2]))
            )
            message = f"stuck in {activity}{f' of update {step}' * (step != '0')}: its limit is {minutes} minutes"
            message += "; it waits for others" * waits
            time_ = path.stat().st_mtime - (not waits) * 60 * float(minutes)
            host = socket.gethostname()
            yield path, Failure(rank=int(rank), host=host, time=time_, message=message, traceback=stacks)


def read_failures(folder: Path, launch_id: str) -> dict[int, Failure]:
    """The notes of one launch, by rank; unreadable ones are ignored."""
    failures = {}
    look_again(folder / FAILURES / launch_id)
    for path in (folder / FAILURES / launch_id).glob("rank-*.json"):
        try:
            failure = Failure(**known(Failure, read_json(path)))
        except (OSError, ValueError, AttributeError, TypeError):
            continue
        failures[failure.rank] = failure
    return failures


def find_cause(failures: Mapping[int, Failure]) -> Failure | None:
    """The rank that failed first."""
    return min(failures.values(), key=lambda failure: (failure.time, failure.rank), default=None)


def newest_cause(folder: Path) -> Failure | None:
    """The first failure of the newest launch with failures; None if there is none."""
    try:
        starts = [path.name for path in (folder / FAILURES).iterdir()]
    except OSError:
        return None
    causes = filter(None, (find_cause(read_failures(folder, start)) for start in starts))
    return max(causes, key=lambda cause: cause.time, default=None)


class TrainingError(Exception):
    """Training cannot continue: gradients stay non-finite, memory runs out, or saving keeps failing."""


def says_all(error: BaseException) -> bool:
    """Whether an error's message says everything, so that a traceback would only hide it.

    That is so if training gave a reason, or if the operating system did, such as a full disk.
    """
    return isinstance(error, TrainingError | UserError) or (isinstance(error, OSError) and error.errno is not None)
