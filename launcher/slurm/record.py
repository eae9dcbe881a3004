"""The jobs that this user has sent for a run, or for a command in a folder: a file for each in the user's state folder.

`$XDG_STATE_HOME/zeromt/HASH.json` has a line of JSON, then the jobs' numbers, a line each, as sbatch prints them. Not
in the run, which may be a stranger's and name any job of the caller's.
"""

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from configs.process.files import disk_errors
from configs.process.text import digest


def jobs_of(run: Path, command: Sequence[str] = ()) -> list[str]:
    """The jobs that this user has sent last from here, in order; none where there is no record.

    Args:
        run: a run's folder; or the folder in which a command was sent.
        command: its words.
    """
    with contextlib.suppress(OSError), _file(run, command).open() as file:
        return read(file)[1]
    return []


@contextlib.contextmanager
def held(folder: Path, command: Sequence[str]) -> Iterator[IO[str]]:
    """The record's file, which no other process reads or writes meanwhile; see `jobs_of`."""
    path = _file(folder, command)
    with disk_errors("XDG_STATE_HOME", path.parent):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with path.open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file


def read(file: IO[str]) -> tuple[Mapping[str, Any], list[str]]:
    """What was sent, and its jobs; nothing where the file says nothing that can be read."""
    file.seek(0)
    with contextlib.suppress(ValueError, TypeError):
        first, *lines = file.read().splitlines() or [""]
        return dict(json.loads(first)), [line.partition(";")[0] for line in lines]
    return {}, []


def begin(file: IO[str], sent: Mapping[str, Any]) -> None:
    """Note what is about to be sent, replacing what was there."""
    file.truncate(0)
    file.write(json.dumps(sent) + "\n")
    file.flush()


def _file(folder: Path, command: Sequence[str]) -> Path:
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state, "zeromt", f"{digest([str(folder.resolve()), *command])[:32]}.json")
