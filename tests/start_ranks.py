"""`python -m tests.start_ranks N MODULE ARGUMENT...`: `python -m MODULE ARGUMENT...` as N ranks of this machine.

torch and DeepSpeed are imported once, before the ranks are forked: several seconds of a core for every rank that need
not do it. What is tried in ranks need not wait for that; that torchrun itself starts ranks is tried elsewhere.
"""

import gc
import os
import runpy
import signal
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path

from trainer.runs.process.imports import quick_imports

with quick_imports():
    import trainer.build
    import trainer.engines.deepspeed.engine  # noqa: F401

PATIENCE = 10.0
"""Seconds between SIGTERM to the ranks that are left when one has failed, and SIGKILL."""


def main(size: int, module: str) -> int:
    """0 when every rank ended with 0, else 1, as torchrun has it; a rank that fails ends the others."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    os.environ |= {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size),
    }
    num_threads = len(list(Path("/proc/self/task").iterdir()))  # those of libraries too
    assert num_threads == 1, "what is imported has started threads, which a fork would lose"
    gc.freeze()
    left = set()
    for rank in range(size):
        pid = os.fork()
        if not pid:
            os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            runpy.run_module(module, run_name="__main__", alter_sys=True)
            return 0
        left.add(pid)
    return _wait(left)


def _wait(left: set[int]) -> int:
    end = None
    failed = False
    while left:
        for pid in list(left):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                left.remove(pid)
                failed |= status != 0
        if failed and end is None:
            end = time.monotonic() + PATIENCE
            _send(left, signal.SIGTERM)
        if end is not None and time.monotonic() > end:
            _send(left, signal.SIGKILL)
        time.sleep(0.02)
    return int(failed)


def _send(pids: set[int], number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


if __name__ == "__main__":
    del sys.argv[0]
    size, module = int(sys.argv.pop(0)), sys.argv[0]
    sys.exit(main(size, module))
