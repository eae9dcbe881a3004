"""Ranks forked from the agent, which has imported once what all of them need.

torch and DeepSpeed take every rank seconds of a core. The agent imports torch anyway; here it imports the rest as well
and forks its ranks while it has one thread, no socket and no signal handler. Each waits at a socket of its own until
torchrun starts it, and then runs the module as `python -m` would. Where there are GPUs ranks are started as ever: what
is imported may have met their driver, with which a fork could not go on.
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
"""What torchrun starts, behind the interpreter's name."""
_POLL_SECONDS = 0.02


def can_fork(environ: Mapping[str, str]) -> bool:
    """Whether ranks may be forked on this machine: on CPUs, and where `SWITCH` does not forbid it."""
    if environ.get(SWITCH) == "0" or environ.get("DS_ACCELERATOR", "cpu") != "cpu":
        return False
    built = importlib.import_module("torch.version")
    if built.hip is not None or getattr(built, "xpu", None) is not None:
        return False
    return built.cuda is None or num_gpus(environ) == 0


def import_for_ranks() -> bool:
    """Import what ranks need; whether they can be forked from this process now.

    A rank that is started anew says better than this process what is wrong with an import. Threads of libraries would
    be missing in a fork, and what they hold locked would stay so.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # it starts threads when it is loaded; nothing here needs them
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    try:
        with warnings.catch_warnings(action="ignore"):
            for module in MODULES:
                importlib.import_module(module)
    except Exception:
        return False
    return len(list(Path("/proc/self/task").iterdir())) == 1


class WaitingRank:
    """A fork of this process; for torchrun what `subprocess.Popen` is to it: a pid, `poll` and `wait`."""

    def __init__(self, pid: int, connection: socket.socket) -> None:
        """Of a child that reads what to run from the other end."""
        self.pid = pid
        self.returncode: int | None = None
        self._connection = connection

    def start(self, arguments: Sequence[str], environment: Mapping[str, str], logs: Sequence[str | None]) -> None:
        """Let it run; a child that is gone by now has an exit code, which tells.

        Args:
            arguments: the interpreter, -u, -m, the module and its arguments.
            environment: all of it.
            logs: files for standard output and error, which exist; None leaves this process's.
        """
        message = json.dumps({"arguments": arguments, "environment": dict(environment), "logs": logs})
        with contextlib.suppress(OSError):
            self._connection.sendall(message.encode())
        self._connection.close()

    def dismiss(self) -> None:
        """Let it end without having run."""
        self._connection.close()
        self.wait()

    def poll(self) -> int | None:
        """Its exit code, minus the signal's number where one ended it; None while it runs."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code.

        Raises:
            subprocess.TimeoutExpired: it still runs after so many seconds.
        """
        end = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if end is not None and time.monotonic() >= end:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            time.sleep(_POLL_SECONDS)
        return code


def fork_ranks(number: int) -> list[WaitingRank]:
    """So many ranks that wait, each the leader of a session; none where there can be no more processes.

    Requests to stop are blocked in them until each can hear one. A child never returns from here: it ends by
    SystemExit, or by what the rank raises, so nothing around the fork may catch that.
    """
    ranks: list[WaitingRank] = []
    ours: list[socket.socket] = []
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    for _ in range(number):
        connection, childs = socket.socketpair()
        ours.append(connection)
        pid = _fork()
        if pid == 0:
            for other in ours:  # by which the children know that their parent is gone
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
    """Let those that were never started end."""
    for rank in ranks:
        rank.dismiss()


def starting(popen: Callable[..., Any], waiting: list[WaitingRank]) -> Callable[..., Any]:
    """torchrun's way to start a process, which takes a waiting rank while there is one."""

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
    """The child's side: wait, then be `python -m MODULE`."""
    os.setsid()
    message = b""
    try:
        connection.send(b".")
        while part := connection.recv(1 << 16):
            message += part
        told = json.loads(message)
    except (OSError, ValueError):  # the agent is gone, or ended without starting its ranks
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
