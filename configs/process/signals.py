"""Requests to a rank to save and stop at the next update: signals, a file STOP, and the end of its parent process."""

import contextlib
import ctypes
import functools
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from configs.process.files.inside import is_listed
from configs.process.streams import CLEAR, is_live

PR_SET_PDEATHSIG = 1
"""Option of `prctl`: the signal that this process gets when its parent ends."""
STOPPED = 75
"""Exit code of a command that was asked to stop; the same command resumes."""
STOP_SIGNALS = (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGTERM)
"""From Ctrl-C, a closed terminal, Ctrl-\\, a scheduler's warning, and a scheduler. torchrun forwards all but SIGUSR1
to its ranks. In the order in which handlers are set: SIGTERM's is the last, which a launcher looks for."""
STOPPED_BY_FILE = "stop file"
"""Reason of a stop that a user requested; the others are `ORPHANED` and a signal's name."""
ORPHANED = "torchrun is gone"
"""Reason of a stop because the process that started the ranks ended before them."""
_LOOK_SECONDS = 1.0
_MEETING_SECONDS = 3.0


class StopRequest:
    """Remembers a request to stop. All ranks agree on the update at which they stop.

    It must exist before torch is imported, which takes seconds: a signal before the handlers are installed would kill a
    rank, and the others would wait for it. Further requests change nothing.
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

    def __call__(self) -> bool:
        """Whether this rank was asked to stop. Cheap: a watched file is checked once a second."""
        if self._signal is not None or self._is_in_file:
            return True
        if self._file is not None and time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + _LOOK_SECONDS
            self._is_in_file = is_listed(self._file)
        return self._is_in_file

    @property
    def reason(self) -> str | None:
        """Why this rank was asked to stop: "stop file", `ORPHANED`, or the first signal's name; None if it was not.

        The file takes precedence: after a scheduler's signal alone a run would be resumed, but the user wants it
        stopped.
        """
        if self._is_in_file or (self._file is not None and is_listed(self._file)):
            return STOPPED_BY_FILE
        # Checked here and not in the handler: the kernel already signals when the agent's first thread ends.
        if self._signal == signal.SIGTERM and self._agent not in (None, os.getppid()):
            return ORPHANED
        return None if self._signal is None else self._signal.name

    def watch_file(self, file: Path) -> None:
        """Also take this file as a request. For rank 0; a request to one rank stops all."""
        self._file = file

    def consume(self) -> None:
        """Remove the file once the run has stopped or finished, so that the next start does not find it."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.unlink()

    def settle(self) -> None:
        """Ignore further requests: the outcome is written, and a signal to the ending process would change it.

        Python itself restores the default handlers before a process ends.
        """
        for number in self._signals:
            signal.signal(number, signal.SIG_IGN)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self._signal is None:
            self._signal = signal.Signals(number)


@functools.cache
def stop_request() -> StopRequest:
    """This process's request; the first call installs the handlers."""
    return StopRequest()


@contextlib.contextmanager
def ending_at_stop() -> Iterator[None]:
    """Let a request to stop end this process, where it waits for other ranks before there is anything to save.

    torch waits for them in C++, where Python runs no handlers: the interpreter tells a thread of the signal. A rank
    that goes on within a few seconds stops as always, with the others.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    is_over = threading.Event()
    told, tells = os.pipe()
    os.set_blocking(tells, False)
    before = signal.set_wakeup_fd(tells, warn_on_full_buffer=False)

    def watch() -> None:
        while number := os.read(told, 1):
            if number[0] in STOP_SIGNALS and not is_over.wait(_MEETING_SECONDS):
                tell_in_handler("zeromt: asked to stop while the ranks had not met; nothing was lost")
                os._exit(STOPPED)

    thread = threading.Thread(target=watch, name="stop-before-start", daemon=True)
    thread.start()
    if stop_request()():  # before this block, when no number went into the pipe
        os.write(tells, bytes([signal.SIGTERM]))
    try:
        yield
    finally:
        is_over.set()
        signal.set_wakeup_fd(before)
        os.close(tells)
        thread.join()
        os.close(told)


def prctl(option: int, value: int) -> None:
    """prctl(2) for this process; does nothing where another C library does not have it."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value)


def agent_pid() -> int | None:
    """The id of the process that started this rank, torchrun; None if there is none."""
    return None if "TORCHELASTIC_RUN_ID" not in os.environ else os.getppid()


def end_with_parent() -> None:
    """Make the kernel ask this rank to save and stop when torchrun dies; otherwise it would hold its GPU for ever.

    torchrun is killed with its launcher, and dies of SIGUSR1, a scheduler's usual warning, which it does not handle.
    The updates since the last checkpoint need not be lost with it. If it hangs, the limit of its activity ends it.
    """
    if agent_pid() is not None:
        prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def tell_in_handler(line: str) -> None:
    """Write a line to stderr from a signal handler, ignoring errors such as a closed terminal.

    This does not use print: a handler may interrupt one, and a buffered stream is not reentrant.
    """
    with contextlib.suppress(OSError):
        os.write(2, f"{CLEAR if is_live(sys.stderr) else ''}{line}\n".encode(errors="replace"))
