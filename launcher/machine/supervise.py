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

import psutil
from typing_extensions import override

from configs.process.kernel import PR_SET_PDEATHSIG, prctl
from configs.process.signals import STOP_SIGNALS, tell_in_handler

_LOOK_SECONDS = 0.2
_RANKS_SECONDS = 5.0
"""Seconds in which torchrun must have started ranks that can be asked; it may be waiting for other nodes."""


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
            if self.was_stopped:
                self._ask(child, asked)
            time.sleep(_LOOK_SECONDS)
        return child.returncode

    def _ask(self, child: "subprocess.Popen[bytes]", asked: set[int]) -> None:
        if not asked:
            child.terminate()
            asked.add(child.pid)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        name = signal.Signals(number).name
        if self.was_stopped:
            tell_in_handler(f"zeromt: {name}: already stopping; kill -9 {os.getpid()} gives up waiting")
        else:
            tell_in_handler(f"zeromt: {name}: asking {self._asks}; waiting for them")
        self.was_stopped = True


class RankSupervisor(Supervisor):
    """Of torchrun: it asks the ranks, which save and end with 0.

    torchrun itself, if asked, would end them after 30 seconds, and the other nodes would wait for it. It is killed with
    this process, whereupon its ranks save and end.
    """

    _ended_by = signal.SIGKILL

    def __init__(self) -> None:
        super().__init__("the ranks to save and stop")
        self._patience = 0.0

    @override
    def _ask(self, child: "subprocess.Popen[bytes]", asked: set[int]) -> None:
        self._patience = self._patience or time.monotonic() + _RANKS_SECONDS
        with contextlib.suppress(psutil.NoSuchProcess):  # they have just ended
            for rank in psutil.Process(child.pid).children():
                if rank.pid not in asked and _hears(rank.pid):
                    rank.terminate()
                    asked.add(rank.pid)
        if not asked and time.monotonic() > self._patience:
            child.kill()  # no rank has begun, and torchrun in its rendezvous hears no signal


def _hears(pid: int) -> bool:
    """Whether a process has its handler for SIGTERM, by the kernel's mask of caught signals; earlier it would die."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return False
    caught = next(line.split()[1] for line in lines if line.startswith("SigCgt:"))
    return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)
