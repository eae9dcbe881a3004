"""SIGTERM to the launchers of a job's nodes at any moment leaves no process behind."""

import contextlib
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.waiting import PATIENCE, wait_until


def left(mark: str) -> list[int]:
    """Processes with this in their environment, whoever their parents are by now."""
    pids = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError):
            is_dead = (entry / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
            if not is_dead and mark.encode() in (entry / "environ").read_bytes():
                pids.append(int(entry.name))
    return pids


@pytest.mark.parametrize("moments", [1, pytest.param(6, marks=pytest.mark.slow)])
def test_sigterm_at_any_moment_leaves_nothing(
    launch: Callable[..., "subprocess.Popen[str]"], workplace: Path, moments: int
) -> None:
    """From before the nodes meet to after their ranks have begun. The seed is the moment's number."""
    for number in range(moments):
        draw = random.Random(100 + number)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        options = ("--nnodes", "2", "--rendezvous", f"localhost:{port}", "--job-id", "j", "--nproc", "1")
        children = [
            launch("wait,wait", *options, "--node-rank", str(rank), f"name=m{number}", command="node")
            for rank in (0, 1)
        ]
        try:
            time.sleep(draw.uniform(0, 12))
            for child in children:
                child.send_signal(signal.SIGTERM)
                time.sleep(draw.uniform(0, 0.5))
            for child in children:
                _, err = child.communicate(timeout=PATIENCE)
                # Before Python has run its first lines, a signal ends it as it ends every process.
                assert child.returncode == 75 or (child.returncode == -signal.SIGTERM and not err), (number, err)
            wait_until(lambda: left(str(workplace / "fake")) == [])
        finally:
            for pid in left(str(workplace / "fake")):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
