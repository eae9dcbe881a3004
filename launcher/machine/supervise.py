"""Runs children, and passes requests to stop on to them."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Self

from typing_extensions import override

from configs.process.signals import PR_SET_PDEATHSIG, STOP_SIGNALS, prctl, tell_in_handler

_LOOK_SECONDS = 0.2
_IDLE_SECONDS = 10.0
"""Seconds that torchrun has without ranks, once it was asked to stop or they have ended."""


class Supervisor:
    """Runs children, and asks each of them once to stop when this process is asked. Threads may share it.

    A child gets its own session: Ctrl-C in a terminal signals every process of the foreground group.
    """

    _ended_by = signal.SIGTERM
    """What a child gets when this process is killed."""

    def __init__(self, asks: str = "the commands to stop") -> None:
        """Make one.

        Args:
            asks: what a request asks of the children, for the message.
        """
        self.was_stopped = False
        """Whether a stop was requested."""
        self._signal = signal.SIGTERM
        """What ranks get: SIGINT after Ctrl-C, so that they report that a person stopped them."""
        self._asks = asks
        self._handlers: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        for number in STOP_SIGNALS:
            if signal.getsignal(number) != signal.SIG_IGN:  # nohup, or a shell's background job, ignores it
                self._handlers[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def settle(self) -> None:
        """Ignore further requests: the outcome is decided, and Python ends with the default handlers."""
        for number in self._handlers:
            signal.signal(number, signal.SIG_IGN)
        self._handlers.clear()

    def run(self, command: Sequence[str], environment: Mapping[str, str]) -> int:
        """Start a child and wait for it.

        Returns:
            Its exit code, or minus the number of the signal that ended it.
        """
        if self.was_stopped:
            return 1
        child = subprocess.Popen(
            command,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=lambda: prctl(PR_SET_PDEATHSIG, self._ended_by),
        )
        asked: set[int] = set()
        while child.poll() is None:
            self._look(child, asked)
            time.sleep(_LOOK_SECONDS)
        return child.returncode

    def _look(self, child: "subprocess.Popen[bytes]", asked: set[int]) -> None:
        """Ask the child, if this process was asked; `asked` are the processes that were asked before."""
        if self.was_stopped and not asked:
            child.terminate()
            asked.add(child.pid)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        name = signal.Signals(number).name
        if self.was_stopped:
            tell_in_handler(f"zeromt: {name}: already stopping; kill -9 {os.getpid()} gives up waiting")
        else:
            tell_in_handler(f"zeromt: {name}: asking {self._asks}; waiting for them")
            self._signal = signal.SIGINT if number == signal.SIGINT else signal.SIGTERM
        self.was_stopped = True


class RankSupervisor(Supervisor):
    """Runs torchrun. It asks the ranks themselves, which save and end with 0.

    torchrun itself, if asked, would end them after 30 seconds, and the other nodes would wait for it. It is killed with
    this process, whereupon its ranks save and end.
    """

    _ended_by = signal.SIGKILL

    def __init__(self) -> None:
        super().__init__("the ranks to save and stop")
        self._began = False
        self._idle_since: float | None = None

    @override
    def run(self, command: Sequence[str], environment: Mapping[str, str]) -> int:
        self._began, self._idle_since = False, None
        return super().run(command, environment)

    @override
    def _look(self, child: "subprocess.Popen[bytes]", asked: set[int]) -> None:
        ranks = _children(child.pid)
        self._began = self._began or bool(ranks)
        for rank in ranks if self.was_stopped else ():
            if rank not in asked and _has_handlers(rank):
                with contextlib.suppress(ProcessLookupError):  # it has just ended
                    os.kill(rank, self._signal)
                asked.add(rank)
        if ranks or not (self.was_stopped or self._began):
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = time.monotonic()
        elif time.monotonic() - self._idle_since > _IDLE_SECONDS:
            child.kill()  # waiting for other nodes, before or after their ranks have run, it hears no signal


def _children(pid: int) -> list[int]:
    """The children of a process."""
    children: list[int] = []
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # it has just ended
            children += map(int, listed.read_text().split())
    return children


def _has_handlers(pid: int) -> bool:
    """Whether a process has its handlers, SIGTERM's last, by the kernel's mask of caught signals; else it would die."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return False
    caught = next(line.split()[1] for line in lines if line.startswith("SigCgt:"))
    return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)
