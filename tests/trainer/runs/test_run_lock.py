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
from trainer.runs import run_lock
from trainer.runs.layout import LAUNCH_LOCK
from trainer.runs.run_lock import RunLock, RunLockedError, holder_since, is_locked

ELSEWHERE = """
import fcntl, socket
socket.gethostname = lambda: "elsewhere"
fcntl.lockf = lambda *_: None
"""
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
def held(folder: Path, by: str = "") -> Iterator["subprocess.Popen[str]"]:
    """By another process, which lets go when there is a file `let-go`, and lives on."""
    command = [sys.executable, "-c", by + HOLD, str(folder), str(folder / "let-go")]
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


@pytest.fixture
def local_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a mount that does not pass locks on to other machines."""
    monkeypatch.setattr(fcntl, "lockf", lambda *_: None)
    monkeypatch.setattr(run_lock, "STILL_SECONDS", 5.0)


@pytest.mark.usefixtures("local_locks")
def test_machine_that_gives_signs_of_life_keeps_the_run(tmp_path: Path) -> None:
    with held(tmp_path, ELSEWHERE) as process:
        with pytest.raises(RunLockedError) as caught:
            RunLock(tmp_path).acquire(patience_seconds=0)
        assert is_locked(tmp_path)
        assert not is_locked(tmp_path, LAUNCH_LOCK)
        (tmp_path / "let-go").touch()
        wait_until(lambda: not (tmp_path / "run.life").exists())
        lock = RunLock(tmp_path)
        lock.acquire(patience_seconds=0)
        lock.release()
    assert re.search(
        rf"by process {process.pid} on elsewhere since [^,]*, which gave a sign of life \d s ago;", str(caught.value)
    )


@pytest.mark.usefixtures("local_locks")
def test_machine_that_gives_no_sign_of_life_loses_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Should it wake up it ends, and does not write."""
    with held(tmp_path, ELSEWHERE) as process:
        process.send_signal(signal.SIGSTOP)
        lock = RunLock(tmp_path)
        lock.acquire(patience_seconds=0)
        assert f"process {process.pid} on elsewhere" in capsys.readouterr().err
        process.send_signal(signal.SIGCONT)
        assert process.wait(PATIENCE) == 2
        lock.release()
    assert not (tmp_path / "run.life").exists()


def test_a_sign_of_life_that_says_nothing_ends_nobody(tmp_path: Path) -> None:
    """Another machine may just be writing its own, or a disk be full."""
    life = tmp_path / "run.life"
    with held(tmp_path) as process:
        wait_until(life.exists)
        for text in ("", '{"pid"'):
            life.write_text(text)
            wait_until(lambda: len(life.read_text()) > 10)
            assert process.poll() is None


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
        with pytest.raises(RunLockedError, match="by another process; only one job"):
            RunLock(tmp_path).acquire(patience_seconds=0)
        assert holder_since(tmp_path) is None


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_file_system_without_locks(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "lockf", refuse)
    lock = RunLock(tmp_path)
    lock.acquire()
    lock.release()
    assert "the file system has no locks" in caplog.text
    assert not is_locked(tmp_path)
    with held(tmp_path, ELSEWHERE):
        wait_until((tmp_path / "run.life").exists)
        assert is_locked(tmp_path), "another machine gives signs of life"


def test_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^output: .*run\.lock' cannot be opened: No such file"):
        RunLock(tmp_path / "none").acquire()
    assert not is_locked(tmp_path / "none")
