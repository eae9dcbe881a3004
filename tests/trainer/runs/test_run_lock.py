"""The lock of a run's folder, between real processes."""

import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from configs import UserError
from tests.conftest import environment
from tests.waiting import PATIENCE, wait_until
from trainer.runs.layout import LAUNCH_LOCK
from trainer.runs.run_lock import RunLock, RunLockedError, is_locked

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
        wait_until(lambda: is_locked(folder))
        yield process
    finally:
        process.kill()
        process.communicate()


def test_second_job_is_refused_with_who_has_it(tmp_path: Path) -> None:
    """Also by one that is stopped; another lock of the folder is free."""
    with held(tmp_path) as process:
        wait_until(lambda: (tmp_path / "run.lock").read_text() != "")
        process.send_signal(signal.SIGSTOP)
        with pytest.raises(RunLockedError) as caught:
            RunLock(tmp_path).acquire(patience_seconds=0.5)
        RunLock(tmp_path, LAUNCH_LOCK).acquire(patience_seconds=0)
        assert is_locked(tmp_path)
    assert re.fullmatch(
        rf"output: '{tmp_path}' is being written by process {process.pid} on {socket.gethostname()} "
        r"since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d; only one job at a time may write it: "
        rf"stop it \(zeromt stop {tmp_path}\), or use another name",
        str(caught.value),
    )


def test_kernel_lets_go_when_the_holder_dies(tmp_path: Path) -> None:
    with held(tmp_path) as process:
        process.kill()
        process.communicate()
        assert not is_locked(tmp_path)
        RunLock(tmp_path).acquire(patience_seconds=0)


def test_patience_for_a_job_that_is_ending(tmp_path: Path) -> None:
    with held(tmp_path) as process:
        threading.Timer(0.5, (tmp_path / "let-go").touch).start()
        RunLock(tmp_path).acquire(patience_seconds=10 * PATIENCE)  # taken when it is free, or never
        assert process.poll() is None, "it let go while it lived"


def test_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^output: .*run\.lock' cannot be opened: No such file"):
        RunLock(tmp_path / "none").acquire()
    assert not is_locked(tmp_path / "none")
