"""A lock, so that only one job at a time writes a run's folder.

The kernel holds it, and releases it when the process ends, in whatever way. The file names the holder. A file system
without locks lets everybody in.
"""

import contextlib
import errno
import fcntl
import os
import socket
import time
from pathlib import Path
from typing import IO

from configs import UserError
from configs.process.files.inside import opened
from trainer.runs.layout import RUN_LOCK

_RETRY_SECONDS = 0.2


class RunLockedError(UserError):
    """Another job is writing the run, so this process must not touch its files, status.json included."""


class RunLock:
    """A POSIX lock on a file in the run's folder.

    A process must hold at most one lock on a file: closing another handle of the file would release it.
    """

    def __init__(self, folder: Path, name: str = RUN_LOCK) -> None:
        self._path = folder / name
        self._file: IO[bytes] | None = None

    def acquire(self, patience_seconds: float = 15.0) -> None:
        """Take the lock, and write the holder into it.

        Args:
            patience_seconds: how long to wait for a process that is about to end, such as after a restart.

        Raises:
            RunLockedError: another process holds it.
            UserError: the file cannot be opened.
        """
        try:
            file = opened(self._path, "ab+")
        except OSError as error:
            raise UserError(
                f"output: {str(self._path)!r} cannot be opened: {error.strerror}; choose a folder that can be written"
            ) from error
        deadline = time.monotonic() + patience_seconds
        while _is_held(file, fcntl.LOCK_EX):
            if time.monotonic() >= deadline:
                file.seek(0)
                holder, folder = file.read().decode(errors="replace").strip() or "another process", self._path.parent
                file.close()
                raise RunLockedError(
                    f"output: {str(folder)!r} is being written by {holder}; only one job at a time may write it: stop "
                    f"it (zeromt stop {folder}), or use another name"
                )
            time.sleep(_RETRY_SECONDS)
        self._file = file
        note = f"process {os.getpid()} on {socket.gethostname()} since {time.strftime('%Y-%m-%d %H:%M:%S')}\n"
        with contextlib.suppress(OSError):  # a full disk: the lock holds without its note
            file.truncate(0)
            file.write(note.encode())
            file.flush()

    def release(self) -> None:
        """Release the lock. The file stays: removing it would race with the next job."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None


def is_locked(folder: Path, name: str = RUN_LOCK) -> bool:
    """Whether another process holds the lock. The holder must not call this, as it would release the lock."""
    try:
        with opened(folder / name) as file:
            return _is_held(file, fcntl.LOCK_SH)
    except OSError:
        return False


def _is_held(file: IO[bytes], kind: int) -> bool:
    """Whether another process holds the lock; otherwise this one has it now."""
    try:
        fcntl.lockf(file, kind | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in (errno.EACCES, errno.EAGAIN)
    return False
