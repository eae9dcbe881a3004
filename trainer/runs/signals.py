"""Signals, a file STOP and the end of the process that started it ask a rank to save and stop at the next update."""

import contextlib
import ctypes
import functools
import os
import signal
import time
from pathlib import Path
from types import FrameType

from trainer.runs.layout import STOP_FILE
from trainer.runs.process.streams import live_terminal

_PR_SET_PDEATHSIG = 1
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1)
"""Of a batch system, Ctrl-C, a closed terminal, Ctrl-\\, and a batch system's warning. torchrun passes all but the last
on to its ranks as they are."""
AGENT_PID = "ZEROMT_AGENT_PID"
"""Environment variable with the process that started the ranks."""
GRACE_SECONDS = "ZEROMT_GRACE_SECONDS"
"""Environment variable with the seconds between a request to stop and the end by force."""
STOPPED_BY_FILE = "stop file"
"""The reason of a stop that a user asked for; the others are `ORPHANED` and a signal's name."""
ORPHANED = "torchrun is gone"
"""The reason of a stop for which the process that started the ranks has ended before them."""
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
        self._agent = agent_pid()
        # Under nohup SIGHUP is ignored already, and stays so.
        is_nohup = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        self._signals = [n for n in STOP_SIGNALS if not (n == signal.SIGHUP and is_nohup)]
        for number in self._signals:
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
        """What asked this rank to stop: "stop file", `ORPHANED`, or the first signal's name; None where nothing did.

        The file counts for more: a batch system's signal is no reason to go on with what a user wants stopped.
        """
        if self._is_in_file or (self._file is not None and self._file.exists()):
            return STOPPED_BY_FILE
        # Asked now and not by the handler: the kernel's signal comes when the agent's first thread ends.
        if self._signal == signal.SIGTERM and self._agent not in (None, os.getppid()):
            return ORPHANED
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
        for number in self._signals:
            signal.signal(number, signal.SIG_IGN)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self._signal is None:
            self._signal = signal.Signals(number)


@functools.cache
def stop_request() -> StopRequest:
    """The one of this process; its handlers are in place from the first call on."""
    return StopRequest()


def agent_pid() -> int | None:
    """The process that started this rank, torchrun; None where there is none."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return None
    return int(os.environ.get(AGENT_PID, os.getppid()))


def end_with_parent() -> None:
    """Let the kernel ask this rank to save and stop when torchrun dies: without it, it would hold its GPU for ever.

    torchrun does not handle SIGUSR1, a batch system's usual warning: it dies of it, as it does of SIGKILL. The updates
    since the last checkpoint need not be lost with it. That the rank ends in time, also where it hangs, is seen to by
    its watchdog's monitor.
    """
    agent = agent_pid()
    if agent is None:
        return
    with contextlib.suppress(OSError, AttributeError):  # another C library: the watchdog's monitor looks too
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != agent:  # it died before the line above: nothing is begun
        os.kill(os.getpid(), signal.SIGKILL)


def tell_in_handler(line: str) -> None:
    """Write a line to stderr from a signal handler, whatever has become of it: of a closed terminal, nobody reads it.

    Not print: a handler may run in the middle of one, and a buffered stream cannot be entered twice.
    """
    with contextlib.suppress(OSError):
        terminal = live_terminal()
        clear = "" if terminal is None else terminal.CLEAR
        os.write(2, f"{clear}{line}\n".encode(errors="replace"))
