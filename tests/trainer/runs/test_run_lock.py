"""The lock of a run's folder, between real processes."""

import errno
import fcntl
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from configs import UserError
from tests.conftest import environment
from tests.waiting import PATIENCE, wait_until
from trainer.runs.layout import LAUNCH_LOCK
from trainer.runs.run_lock import RunLock, RunLockedError, holder_since, is_locked

HOLD = """
import sys, time
from pathlib import Path
from trainer.runs.run_lock import RunLock
lock = RunLock(Path(sys.argv[1]))
lock.acquire()
while not Path(sys.argv[2]).exists():
    time.sleep(0.01)
lock.release()
time.sleep(1000)
"""


@contextmanager
def held(folder: Path) -> Iterator["subprocess.Popen[str]"]:
    """By another process, which lets go when there is a file `let-go`, and lives on."""
    command = [sys.executable, "-c", HOLD, str(folder), str(folder / "let-go")]
    process = subprocess.Popen(command, env=environment(), text=True)
    try:
        wait_until(lambda: holder_since(folder) is not None)
        yield process
    finally:
        process.kill()
        process.communicate()


def test_second_job_is_refused_with_who_has_it(tmp_path: Path) -> None:
    with held(tmp_path) as process:
        begin = time.monotonic()
        with pytest.raises(RunLockedError) as caught:
            RunLock(tmp_path).acquire(patience_seconds=0.5)
        assert time.monotonic() - begin >= 0.5
        assert is_locked(tmp_path)
        assert abs((holder_since(tmp_path) or 0) - time.time()) < 60
    assert re.fullmatch(
        rf"output: '{tmp_path}' is being written by process {process.pid} on {socket.gethostname()} "
        r"since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d; only one job at a time may write it: "
        rf"stop it \(zeromt stop {tmp_path}\), or use another name",
        str(caught.value),
    )


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_kernel_lets_go_when_the_holder_dies(tmp_path: Path, how: signal.Signals) -> None:
    with held(tmp_path) as process:
        process.send_signal(how)
        process.communicate()
        assert not is_locked(tmp_path)
        lock = RunLock(tmp_path)
        lock.acquire(patience_seconds=0)
        lock.release()


def test_stopped_holder_still_holds(tmp_path: Path) -> None:
    with held(tmp_path) as process:
        process.send_signal(signal.SIGSTOP)
        with pytest.raises(RunLockedError):
            RunLock(tmp_path).acquire(patience_seconds=0)


def test_patience_for_a_job_that_is_ending(tmp_path: Path) -> None:
    with held(tmp_path) as process:
        lock = RunLock(tmp_path)
        threading.Timer(0.5, (tmp_path / "let-go").touch).start()
        lock.acquire(patience_seconds=10 * PATIENCE)  # taken when it is free, or never
        assert process.poll() is None, "it let go while it lived"
        lock.release()


def test_two_names_are_two_locks(tmp_path: Path) -> None:
    with held(tmp_path):
        assert is_locked(tmp_path)
        assert not is_locked(tmp_path, LAUNCH_LOCK)
        lock = RunLock(tmp_path, LAUNCH_LOCK)
        lock.acquire(patience_seconds=0)
        assert is_locked(tmp_path), "the other lock is still held"
        lock.release()


def test_note_that_says_nothing(tmp_path: Path) -> None:
    with held(tmp_path):
        (tmp_path / "run.lock").write_text("garbage")
        with pytest.raises(RunLockedError, match="by another process"):
            RunLock(tmp_path).acquire(patience_seconds=0)
        assert holder_since(tmp_path) is None


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_file_system_without_locks(tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then host and process in the file decide."""

    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "lockf", refuse)
    with held(tmp_path) as process:
        assert is_locked(tmp_path)
        with pytest.raises(RunLockedError, match=f"by process {process.pid} on {socket.gethostname()} since"):
            RunLock(tmp_path).acquire(patience_seconds=0)
    lock = RunLock(tmp_path)
    lock.acquire(patience_seconds=0)  # its process is dead
    assert not is_locked(tmp_path)
    lock.release()
    (tmp_path / "run.lock").write_text('{"pid": 7, "host": "elsewhere", "since": 0}')
    with pytest.raises(RunLockedError, match="by process 7 on elsewhere since"):
        lock.acquire(patience_seconds=0)


def test_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^output: .*run\.lock' cannot be opened: No such file"):
        RunLock(tmp_path / "none").acquire()
    assert not is_locked(tmp_path / "none")
