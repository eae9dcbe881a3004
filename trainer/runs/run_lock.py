"""A lock, so that only one job at a time writes a run's folder."""

import contextlib
import errno
import fcntl
import json
import logging
import os
import socket
import time
from datetime import datetime
from pathlib import Path
from typing import IO

from configs import UserError
from trainer.runs.layout import RUN_LOCK

log = logging.getLogger(__name__)

_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
_RETRY_SECONDS = 0.2


class RunLockedError(UserError):
    """Another job is writing the run, so this process must not touch its files, status.json included."""


class RunLock:
    """A POSIX lock on a file in the run's folder; the kernel releases it when the process ends, in whatever way.

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
            file = os.fdopen(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666), "r+", encoding="utf-8")
        except OSError as error:
            raise UserError(
                f"output: {str(self._path)!r} cannot be opened: {error.strerror}; choose a folder that can be written"
            ) from error
        deadline = time.monotonic() + patience_seconds
        while not self._try(file):
            if time.monotonic() >= deadline:
                holder = _holder(file.read())
                file.close()
                raise RunLockedError(
                    f"output: {str(self._folder)!r} is being written by {holder}; only one job at a time may write it: "
                    f"stop it (zeromt stop {self._folder}), or use another name"
                )
            time.sleep(_RETRY_SECONDS)
        self._file = file
        note = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.time()}
        with contextlib.suppress(OSError):  # a full disk: the lock holds without its note
            file.truncate(0)
            file.write(json.dumps(note) + "\n")
            file.flush()

    def release(self) -> None:
        """Release the lock. The file stays: removing it would race with the next job."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None

    def _try(self, file: IO[str]) -> bool:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _NO_LOCKS:
                log.warning(
                    "%s: the file system has no locks (%s); nothing keeps two jobs from writing this run",
                    self._folder,
                    error.strerror,
                )
                return True
            if error.errno in (errno.EACCES, errno.EAGAIN):
                return False
            raise
        return True


def is_locked(folder: Path, name: str = RUN_LOCK) -> bool:
    """Whether another process holds the lock. The holder must not call this, as it would release the lock."""
    try:
        file = (folder / name).open("rb")
    except OSError:
        return False
    with file:
        try:
            fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            return error.errno in (errno.EACCES, errno.EAGAIN)
    return False


def holder_since(folder: Path, name: str = RUN_LOCK) -> float | None:
    """When the lock was last taken, in seconds since the epoch; None if not known."""
    try:
        return float(json.loads((folder / name).read_text(encoding="utf-8"))["since"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _holder(note: str) -> str:
    """The holder according to the note."""
    try:
        tree = json.loads(note)
        since = datetime.fromtimestamp(tree["since"]).strftime("%Y-%m-%d %H:%M:%S")
        return f"process {int(tree['pid'])} on {tree['host']} since {since}"
    except (ValueError, KeyError, TypeError, OverflowError, OSError):
        return "another process"
