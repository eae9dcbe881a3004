"""A lock, so that only one job at a time writes a run's folder.

The kernel holds it, and releases it when the process ends, in whatever way. But between machines it holds only where
the file system passes locks on. So the holder also gives signs of life in a file beside it. Another machine watches
whether that file changes, by its own clock alone, before it takes the lock: while it does, it is refused; once it has
stood still, the holder is taken for dead.
"""

import contextlib
import errno
import fcntl
import json
import logging
import os
import socket
import threading
import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from configs import UserError
from configs.process.files.inside import is_listed, opened, parse_json, read_json, read_text, reading
from configs.process.streams import tell
from trainer.runs.layout import LIFE, RUN_LOCK

log = logging.getLogger(__name__)

_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
_RETRY_SECONDS = 0.2
_BEAT_SECONDS = 2.0
STILL_SECONDS = 10.0
"""Seconds after which another machine's holder, which gives no sign of life, is taken for dead."""
_LIFE_LENGTH = 400


class RunLockedError(UserError):
    """Another job is writing the run, so this process must not touch its files, status.json included."""


class RunLock:
    """A POSIX lock on a file in the run's folder, and signs of life beside it.

    A process must hold at most one lock on a file: closing another handle of the file would release it.
    """

    def __init__(self, folder: Path, name: str = RUN_LOCK) -> None:
        self._folder = folder
        self._path = folder / name
        self._file: IO[str] | None = None
        self._life: _Life | None = None

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
        self._outwait(patience_seconds)
        try:
            file = os.fdopen(opened(self._path, os.O_RDWR | os.O_CREAT), "r+", encoding="utf-8")
        except OSError as error:
            raise UserError(
                f"output: {str(self._path)!r} cannot be opened: {error.strerror}; choose a folder that can be written"
            ) from error
        deadline = time.monotonic() + patience_seconds
        while not self._try(file):
            if time.monotonic() >= deadline:
                holder = _holder(file.read())
                file.close()
                raise self._refusal(holder)
            time.sleep(_RETRY_SECONDS)
        self._file = file
        note = {"pid": os.getpid(), "host": socket.gethostname(), "boot": _boot(), "since": time.time()}
        with contextlib.suppress(OSError):  # a full disk: the lock holds without its note
            file.truncate(0)
            file.write(json.dumps(note) + "\n")
            file.flush()
        self._life = _Life(self._folder, self._path, note)

    def release(self) -> None:
        """Release the lock. The file stays: removing it would race with the next job."""
        if self._life is not None:
            self._life.end()
            self._life = None
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None

    def _refusal(self, holder: str) -> RunLockedError:
        return RunLockedError(
            f"output: {str(self._folder)!r} is being written by {holder}; only one job at a time may write it: "
            f"stop it (zeromt stop {self._folder}), or use another name"
        )

    def _outwait(self, patience_seconds: float) -> None:
        """Wait until another machine's holder, if there is one, gives no more signs of life.

        Raises:
            RunLockedError: it still gives them after so many seconds.
        """
        begin = since = time.monotonic()
        last, has_moved = None, False
        while (now := _foreign_life(self._path)) is not None:
            if last is not None and now != last:
                since, has_moved = time.monotonic(), True
            last = now
            age = time.monotonic() - since
            if has_moved and time.monotonic() - begin >= patience_seconds:
                raise self._refusal(f"{_holder(now)}, which gave a sign of life {age:.0f} s ago")
            if age >= STILL_SECONDS:
                tell(f"zeromt: {self._folder}: {_holder(now)} gave no sign of life for {age:.0f} s; it is taken over")
                return
            time.sleep(_RETRY_SECONDS)

    def _try(self, file: IO[str]) -> bool:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _NO_LOCKS:
                log.warning(
                    "%s: the file system has no locks (%s): two jobs that start within seconds may both write this run",
                    self._folder,
                    error.strerror,
                )
                return True
            if error.errno in (errno.EACCES, errno.EAGAIN):
                return False
            raise
        return True


class _Life:
    """Signs of life of the process that holds a lock, from a thread."""

    def __init__(self, folder: Path, lock: Path, note: Mapping[str, Any]) -> None:
        self._folder = folder
        self._path = _life_of(lock)
        self._note = note
        self._number = 0
        self._is_over = threading.Event()
        self._give()
        self._thread = threading.Thread(target=self._go_on, name="signs-of-life", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Give no more, and leave none."""
        self._is_over.set()
        self._thread.join()
        with contextlib.suppress(OSError):
            self._path.unlink()

    def _go_on(self) -> None:
        while not self._is_over.wait(_BEAT_SECONDS):
            life = _read_life(self._path) or ""
            process = _process_in(life)  # none while somebody else's sign is half written
            if process is not None and process != _process_in(json.dumps(self._note)):
                # This process stood still for so long that another has taken the run; what it still does would harm.
                tell(f"zeromt: error: {self._folder} is now being written by {_holder(life)}; this process ends")
                os._exit(2)
            self._give()

    def _give(self) -> None:
        """Write over what is there: that needs no room on a full disk."""
        self._number += 1
        text = json.dumps({**self._note, "number": self._number}).ljust(_LIFE_LENGTH)
        with contextlib.suppress(OSError), os.fdopen(opened(self._path, os.O_WRONLY | os.O_CREAT), "wb") as file:
            file.write(text.encode())


def _life_of(lock: Path) -> Path:
    return lock.with_suffix(LIFE)


def _read_life(path: Path) -> str | None:
    """What is there; None if nothing is."""
    try:
        return read_text(path, errors="replace") if is_listed(path) else None
    except OSError:
        return None


def _process_in(note: str) -> tuple[Any, ...] | None:
    """Machine and process, according to a note; None if it is not one."""
    try:
        tree = parse_json(note)
        return tree["host"], tree["boot"], tree["pid"]
    except (ValueError, KeyError, TypeError):
        return None


def _foreign_life(lock: Path) -> str | None:
    """The newest sign of life of another machine's process that holds a lock; None if there is none.

    Of this machine's processes the kernel knows more.
    """
    life = _read_life(_life_of(lock))
    process = _process_in(life or "")
    return None if process is not None and process[:2] == (socket.gethostname(), _boot()) else life


def _boot() -> str:
    """The id of this machine's boot: hosts may have equal names."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def is_locked(folder: Path, name: str = RUN_LOCK) -> bool:
    """Whether another process holds the lock. The holder must not call this, as it would release the lock.

    It takes a few seconds where a process of another machine has left signs of life.
    """
    try:
        file = reading(folder / name)
    except OSError:
        return False
    with file:
        try:
            fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                return error.errno in (errno.EACCES, errno.EAGAIN)
    first, end = _foreign_life(folder / name), time.monotonic() + 2 * _BEAT_SECONDS
    while (now := _foreign_life(folder / name)) is not None and now == first:
        if time.monotonic() >= end:
            return False
        time.sleep(_RETRY_SECONDS)
    return now is not None


def holder_since(folder: Path, name: str = RUN_LOCK) -> float | None:
    """When the lock was last taken, in seconds since the epoch; None if not known."""
    try:
        return float(read_json(folder / name)["since"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _holder(note: str) -> str:
    """The holder according to the note."""
    try:
        tree = parse_json(note)
        since = datetime.fromtimestamp(tree["since"]).strftime("%Y-%m-%d %H:%M:%S")
        return f"process {int(tree['pid'])} on {tree['host']} since {since}"
    except (ValueError, KeyError, TypeError, OverflowError, OSError):
        return "another process"
