"""Runs children and forwards signals to them."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import Any, Self

from configs.process.kernel import end_with_parent
from configs.process.signals import tell_in_handler

# Signals of the launcher, and what ranks get: they know two requests to save and stop.
FORWARDED = {
    signal.SIGTERM: signal.SIGTERM,
    signal.SIGINT: signal.SIGTERM,
    signal.SIGHUP: signal.SIGTERM,
    signal.SIGQUIT: signal.SIGTERM,
    signal.SIGUSR1: signal.SIGUSR1,
}


class Supervisor:
    """Runs children and forwards the first request to stop, to each exactly once. Threads may share it.

    A child gets its own session: Ctrl-C in a terminal signals every process of the foreground group, so the ranks would
    be asked twice, the second time while already saving. Later requests are ignored.
    """

    def __init__(self, asks: str = "the ranks to save and stop") -> None:
        """Make one.

        Args:
            asks: what a request asks of the children, for the message.
        """
        self._asks = asks
        self._unasked: set[subprocess.Popen[bytes]] = set()
        self._request: signal.Signals | None = None
        self._handlers: dict[signal.Signals, Any] = {}

    @property
    def was_stopped(self) -> bool:
        """Whether a stop was requested."""
        return self._request is not None

    def __enter__(self) -> Self:
        for number in FORWARDED:
            if signal.getsignal(number) != signal.SIG_IGN:  # nohup, or a shell's background job, ignores it
                self._handlers[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def settle(self) -> None:
        """Ignore further requests: the outcome is decided and this process is about to end.

        That takes a tenth of a second, in which Python restores the default handlers: a late request would turn
        "finished" into "killed by SIGTERM".
        """
        for number in self._handlers:
            signal.signal(number, signal.SIG_IGN)
        self._handlers.clear()

    def run(self, command: Sequence[str], environment: Mapping[str, str]) -> int:
        """Start a child, which is asked to stop when this process ends, even by SIGKILL, and wait for it.

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
            preexec_fn=end_with_parent,
        )
        self._unasked.add(child)
        self._pass_on()  # a request may have come while the child was starting
        code = child.wait()
        self._unasked.discard(child)
        return code

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        name = signal.Signals(number).name
        if self._request is None:
            self._request = signal.Signals(number)
            tell_in_handler(f"zeromt: {name}: asking {self._asks}; waiting for them")
        else:
            tell_in_handler(f"zeromt: {name}: already stopping; kill -9 {os.getpid()} gives up waiting")
        self._pass_on()

    def _pass_on(self) -> None:
        with contextlib.suppress(KeyError):  # all have been asked, the last perhaps by another thread
            while self._request is not None:
                self._unasked.pop().send_signal(FORWARDED[self._request])
