"""A lock, so that only one job at a time writes a run's folder.

The kernel holds it, and releases it when the process ends, in whatever way. The file says who holds it: for the
message, and for file systems without locks, where that decides alone.
"""

import contextlib
import errno
import fcntl
import json
import os
import socket
import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from configs import UserError
from configs.process.files.inside import opened, parse_json, read_json
from configs.process.kernel import state_of
from trainer.runs.layout import RUN_LOCK

_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
_RETRY_SECONDS = 0.2


class RunLockedError(UserError):
    """Another job is writing the run, so this process must not touch its files, status.json included."""


class RunLock:
    """A POSIX lock on a file in the run's folder.

    A process must hold at most one lock on a file: closing another handle of the file would release it.
    """

    def __init__(self, folder: Path, name: str = RUN_LOCK) -> None:
        self._folder = folder
        self._path = folder / name
        self._file: IO[str] | None = None

    def acquire(self, patience_seconds: float = 15.0) -> None:
        """Take the lock, and write into it who holds it.

        Args:
            patience_seconds: how long to wait for a process that is about to end, such as after a restart.

        Raises:
            RunLockedError: another process holds it.
            UserError: the file cannot be opened.
        """
        if self._file is not None:
            return
        try:
            file = opened(self._path, "a+")
        except OSError as error:
            raise UserError(
                f"output: {str(self._path)!r} cannot be opened: {error.strerror}; choose a folder that can be written"
            ) from error
        deadline = time.monotonic() + patience_seconds
        while _is_held(file, fcntl.LOCK_EX):
            if time.monotonic() >= deadline:
                holder = _holder(_note(file))
                file.close()
                raise RunLockedError(
                    f"output: {str(self._folder)!r} is being written by {holder}; only one job at a time may write it: "
                    f"stop it (zeromt stop {self._folder}), or use another name"
                )
            time.sleep(_RETRY_SECONDS)
        self._file = file
        self._write(json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": time.time()}) + "\n")

    def release(self) -> None:
        """Release the lock. The file stays, empty: removing it would race with the next job."""
        if self._file is not None:
            self._write("")
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None

    def _write(self, note: str) -> None:
        assert self._file is not None
        with contextlib.suppress(OSError):  # a full disk: the lock holds without its note
            self._file.seek(0)
            self._file.truncate()
            self._file.write(note)
            self._file.flush()


def is_locked(folder: Path, name: str = RUN_LOCK) -> bool:
    """Whether another process holds the lock. The holder must not call this, as it would release the lock."""
    try:
        file = opened(folder / name)
    except OSError:
        return False
    with file:
        return _is_held(file, fcntl.LOCK_SH)


def holder_since(folder: Path, name: str = RUN_LOCK) -> float | None:
    """When the lock was last taken, in seconds since the epoch; None if not known."""
    try:
        return float(read_json(folder / name)["since"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _is_held(file: IO[str] | IO[bytes], kind: int) -> bool:
    """Whether another process holds the lock; otherwise this one has it now."""
    try:
        fcntl.lockf(file, kind | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):
            return True
        if error.errno not in _NO_LOCKS:
            raise
        note = _note(file)
        host, pid = note.get("host"), note.get("pid")
        if host != socket.gethostname() or not isinstance(pid, int):
            return host is not None
        return pid != os.getpid() and state_of(pid) not in ("", "Z")
    return False


def _note(file: IO[str] | IO[bytes]) -> dict[str, Any]:
    """What a lock's file says of its holder; nothing if it does not."""
    file.seek(0)
    try:
        return dict(parse_json(file.read()))
    except (ValueError, TypeError):
        return {}


def _holder(note: Mapping[str, Any]) -> str:
    try:
        since = datetime.fromtimestamp(note["since"]).strftime("%Y-%m-%d %H:%M:%S")
        return f"process {int(note['pid'])} on {note['host']} since {since}"
    except (ValueError, KeyError, TypeError, OverflowError, OSError):
        return "another process"
