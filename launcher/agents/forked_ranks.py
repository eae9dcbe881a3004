"""Forks ranks from the agent, which has imported once what all of them need.

Importing torch and DeepSpeed takes every rank seconds of a core. The agent imports torch anyway; here it imports the
rest as well and forks its ranks while it has one thread, no socket and no signal handler. Each waits at its own socket
until torchrun starts it, and then runs the module as `python -m` would. With GPUs, ranks are new processes as usual: an
import may have initialised the driver, which does not survive a fork.
"""

import contextlib
import importlib
import json
import logging
import os
import runpy
import signal
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from launcher.machine.process_title import show_as
from trainer.runs.process.gpus import num_gpus
from trainer.runs.signals import STOP_SIGNALS

SWITCH = "ZEROMT_FORK_RANKS"
"""Environment variable; 0 starts every rank as a new process."""
MODULES = ("trainer.main", "trainer.build", "trainer.stability.rewind")
_PYTHON = ("-u", "-m", "trainer")
"""The arguments with which torchrun starts a rank, after the interpreter."""
_POLL_SECONDS = 0.02


def can_fork(environ: Mapping[str, str]) -> bool:
    """Whether ranks may be forked: only on CPUs, and unless `SWITCH` forbids it."""
    if environ.get(SWITCH) == "0" or environ.get("DS_ACCELERATOR", "cpu") != "cpu":
        return False
    built = importlib.import_module("torch.version")
    if built.hip is not None or getattr(built, "xpu", None) is not None:
        return False
    return built.cuda is None or num_gpus(environ) == 0


def import_for_ranks() -> bool:
    """Import what ranks need; returns whether they can be forked from this process now.

    If an import fails, ranks are started as new processes, which report the error better. A fork would lack the threads
    of libraries, and locks that they hold would stay locked.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # it starts threads when loaded, which are not needed here
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    try:
        with warnings.catch_warnings(action="ignore"):
            for module in MODULES:
                importlib.import_module(module)
    except Exception:
        return False
    return len(list(Path("/proc/self/task").iterdir())) == 1


class WaitingRank:
    """A fork of this process, with what torchrun uses of `subprocess.Popen`: pid, `poll` and `wait`."""

    def __init__(self, pid: int, connection: socket.socket) -> None:
        """Wrap a child that reads from the other end of the socket what to run."""
        self.pid = pid
        self.returncode: int | None = None
        self._connection = connection

    def start(self, arguments: Sequence[str], environment: Mapping[str, str], logs: Sequence[str | None]) -> None:
        """Make the child run the module. If it has died already, its exit code will tell.

        Args:
            arguments: the interpreter, -u, -m, the module and its arguments.
            environment: the complete environment.
            logs: files for standard output and error, which exist; None leaves this process's.
        """
        message = json.dumps({"arguments": arguments, "environment": dict(environment), "logs": logs})
        with contextlib.suppress(OSError):
            self._connection.sendall(message.encode())
        self._connection.close()

    def dismiss(self) -> None:
        """Make the child end without running anything."""
        self._connection.close()
        self.wait()

    def poll(self) -> int | None:
        """Its exit code, or minus the number of the signal that ended it; None while it runs."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code.

        Raises:
            subprocess.TimeoutExpired: it is still running after this many seconds.
        """
        end = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if end is not None and time.monotonic() >= end:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            time.sleep(_POLL_SECONDS)
        return code


def fork_ranks(number: int) -> list[WaitingRank]:
    """Fork this many waiting ranks, each a session leader; empty if no more processes can be created.

    Requests to stop are blocked in them until each can handle one. A child never returns from here: it ends by
    SystemExit or the rank's exception, which no code around the fork may catch.
    """
    ranks: list[WaitingRank] = []
    ours: list[socket.socket] = []
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    for _ in range(number):
        connection, childs = socket.socketpair()
        ours.append(connection)
        pid = _fork()
        if pid == 0:
            for other in ours:  # by it the children notice that their parent is gone
                other.close()
            _run_when_told(childs)
        childs.close()
        if pid is None:
            connection.close()
            dismiss(ranks)
            ranks = []
            break
        connection.recv(1)
        ranks.append(WaitingRank(pid, connection))
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    return ranks


def dismiss(ranks: Sequence[WaitingRank]) -> None:
    """Dismiss the ranks that were never started."""
    for rank in ranks:
        rank.dismiss()


def starting(popen: Callable[..., Any], waiting: list[WaitingRank]) -> Callable[..., Any]:
    """A replacement for torchrun's function that starts a process; it uses a waiting rank if there is one."""

    def start(handler: Any, arguments: Sequence[str], environment: Mapping[str, str]) -> Any:
        if not waiting or tuple(arguments[1:4]) != _PYTHON:
            return popen(handler, arguments, environment)
        rank = waiting.pop(0)
        logs = [file and str(Path(file.name).absolute()) for file in (handler._stdout, handler._stderr)]
        rank.start(arguments, environment, logs)
        return rank

    return start


def _fork() -> int | None:
    try:
        return os.fork()
    except OSError:
        return None


def _run_when_told(connection: socket.socket) -> NoReturn:
    """The child's side: wait, then act as `python -m MODULE`."""
    os.setsid()
    message = b""
    try:
        connection.send(b".")
        while part := connection.recv(1 << 16):
            message += part
        told = json.loads(message)
    except (OSError, ValueError):  # the agent died, or ended without starting its ranks
        os._exit(0)
    connection.close()
    for descriptor, path in zip((1, 2), told["logs"], strict=True):
        if path is not None:
            file = os.open(path, os.O_WRONLY | os.O_APPEND)
            os.dup2(file, descriptor)
            os.close(file)
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(told["environment"])
    show_as(told["arguments"], {name: value for name, value in os.environ.items() if before.get(name) != value})
    logging.disable(logging.NOTSET)
    module, *arguments = told["arguments"][3:]
    sys.argv[:] = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
    sys.exit(0)
