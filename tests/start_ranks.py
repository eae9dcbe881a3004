"""`python -m tests.start_ranks N ARGUMENT...`: `python ARGUMENT...` as N ranks of this machine.

torchrun imports torch first, two seconds in which no rank starts. What is tried in ranks need not wait for that; that
torchrun itself starts ranks is tried elsewhere.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress

PATIENCE = 10.0
"""Seconds between SIGTERM to the ranks that are left when one has failed, and SIGKILL."""


def main(argv: Sequence[str]) -> int:
    """0 when every rank ended with 0, else 1, as torchrun has it; a rank that fails ends the others."""
    size = int(argv[0])
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    common = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size),
    }
    left: dict[int, subprocess.Popen[bytes]] = {}
    for rank in range(size):
        environment = {**os.environ, **common, "RANK": str(rank), "LOCAL_RANK": str(rank)}
        left[rank] = subprocess.Popen([sys.executable, *argv[1:]], env=environment)
    end = None
    failed = False
    while left:
        for rank, process in list(left.items()):
            if process.poll() is not None:
                del left[rank]
                failed |= process.returncode != 0
        if failed and end is None:
            end = time.monotonic() + PATIENCE
            _send(left.values(), signal.SIGTERM)
        if end is not None and time.monotonic() > end:
            _send(left.values(), signal.SIGKILL)
        time.sleep(0.02)
    return int(failed)


def _send(processes: Iterable[subprocess.Popen[bytes]], number: int) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            process.send_signal(number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
