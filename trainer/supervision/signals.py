"""SIGTERM, SIGINT and SIGUSR1 ask a rank to save and stop at the next update."""

import ctypes
import functools
import os
import signal
from types import FrameType

_PR_SET_PDEATHSIG = 1
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)


class StopRequest:
    """Remembers that someone asked to stop. All ranks agree on the update at which they do.

    Made before torch is imported, which takes seconds: a rank that a signal finds without its handler dies, and the
    others wait for it.
    """

    def __init__(self) -> None:
        self._requested = False
        for number in STOP_SIGNALS:
            signal.signal(number, self._on_signal)

    def __call__(self) -> bool:
        """Whether this rank was asked."""
        return self._requested

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._requested = True


@functools.cache
def stop_request() -> StopRequest:
    """The one of this process; its handlers are in place from the first call on."""
    return StopRequest()


def end_with_parent() -> None:
    """Let the kernel kill this rank when torchrun dies: a rank without its agent would hold its GPU for ever."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return
    parent = os.getppid()
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    except (OSError, AttributeError):
        return
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
