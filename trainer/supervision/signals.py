"""SIGTERM, SIGINT, SIGUSR1 and a file STOP ask a rank to save and stop at the next update."""

import contextlib
import ctypes
import functools
import os
import signal
import time
from pathlib import Path
from types import FrameType

_PR_SET_PDEATHSIG = 1
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
STOP_FILE = "STOP"
"""In a run's folder."""
AGENT_PID = "ZEROMT_AGENT_PID"
"""Environment variable with the process that started the ranks."""
GRACE_SECONDS = "ZEROMT_GRACE_SECONDS"
"""Environment variable with the seconds between a request to stop and the end by force."""
STOPPED_BY_FILE = "stop file"
"""The reason of a stop that a user asked for; any other is a signal's name."""
_LOOK_SECONDS = 1.0


class StopRequest:
    """Remembers that someone asked to stop. All ranks agree on the update at which they do.

    Made before torch is imported, which takes seconds: a rank that a signal finds without its handler dies, and the
    others wait for it. Further requests change nothing.
    """

    def __init__(self) -> None:
        self._signal: signal.Signals | None = None
        self._is_in_file = False
        self._file: Path | None = None
        self._next_look = 0.0
        for number in STOP_SIGNALS:
            signal.signal(number, self._on_signal)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)  # the agent starts its ranks with these blocked

    def __call__(self) -> bool:
        """Whether this rank was asked. Cheap: a watched file is looked for once a second."""
        if self._signal is not None or self._is_in_file:
            return True
        if self._file is not None and time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + _LOOK_SECONDS
            self._is_in_file = self._file.exists()
        return self._is_in_file

    @property
    def reason(self) -> str | None:
        """What asked this rank to stop: "stop file", or the name of the first signal; None where nothing did.

        The file counts for more: a batch system's signal is no reason to go on with what a user wants stopped.
        """
        if self._is_in_file or (self._file is not None and self._file.exists()):
            return STOPPED_BY_FILE
        return None if self._signal is None else self._signal.name

    def watch_file(self, folder: Path) -> None:
        """Take a file STOP in the run's folder as a request too. For rank 0: one rank's request is everyone's."""
        self._file = folder / STOP_FILE

    def consume(self) -> None:
        """Remove the file, once the run has stopped or finished: the next start is not to find it."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.unlink()

    def settle(self) -> None:
        """Take no more requests: the outcome is written, and a signal to an ending process would give it another.

        Python itself puts the default handlers back before a process ends.
        """
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_IGN)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self._signal is None:
            self._signal = signal.Signals(number)


@functools.cache
def stop_request() -> StopRequest:
    """The one of this process; its handlers are in place from the first call on."""
    return StopRequest()


def end_with_parent() -> None:
    """Let the kernel kill this rank when torchrun dies: a rank without its agent would hold its GPU for ever."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return
    agent = int(os.environ.get(AGENT_PID, os.getppid()))
    with contextlib.suppress(OSError, AttributeError):  # another C library: the watchdog's monitor looks too
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != agent:  # it died before the line above
        os.kill(os.getpid(), signal.SIGKILL)
