"""The progress bar of a run, if rank 0's standard error is a terminal.

A thread draws it twice a second from state that the loop keeps anyway, so that it costs the loop nothing, and a blocked
terminal (Ctrl-S) only blocks the thread and, as always, log lines on that terminal. The cursor is left at the beginning
of the bar's line, and `streams.tell` clears that line first, so that output of other processes stays in whole lines.
"""

import contextlib
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tqdm import tqdm
from typing_extensions import override

from configs.process.terminal import CLEAR, columns, is_live
from trainer.terminal.forecast import Outlook, interval
from trainer.terminal.lines import LiveBar, LogHandler

SECONDS_BETWEEN = 0.5
_DOINGS = {
    "setup": "setting up",
    "data": "training",
    "step": "training",
    "save": "saving",
    "evaluation": "evaluating",
    "shutdown": "ending",
    None: "training",
}


@dataclass(kw_only=True, slots=True, frozen=True)
class View:
    """The contents of a bar."""

    step: int
    last_step: int
    outlook: Outlook
    activity: str | None
    """The current activity; None between two."""


def render(view: View, width: int, *, ascii_only: bool = False) -> str:
    """The bar's text, in at most this many columns."""
    outlook = view.outlook
    more = [f"step {view.step:,} of {view.last_step:,}"]
    if outlook.seconds_per_update is not None:
        more.append(f"{outlook.seconds_per_update:.3g} s/update")
    if outlook.seconds_left is not None:
        more.append(f"{interval(outlook.seconds_left)} left")
    doing = _DOINGS.get(view.activity, view.activity or "")
    form = f"{doing:<10} {outlook.fraction:4.0%} |{{bar}}| {', '.join(more)}"
    return str(tqdm.format_meter(outlook.fraction, 1, 0, ncols=width, ascii=ascii_only, bar_format=form))


class Bar(LiveBar):
    """Draws the bar until it is closed."""

    def __init__(self, view: Callable[[], View]) -> None:
        self._view = view
        self._lock = threading.Lock()
        """Held while writing to the terminal."""
        self._is_over = threading.Event()
        self._ascii_only = "utf" not in (sys.stderr.encoding or "").lower()
        self._handlers = [h for h in logging.root.handlers if isinstance(h, LogHandler) and h.is_live]
        for handler in self._handlers:
            handler.live_bar = self
        self._thread = threading.Thread(target=self._run, name="bar", daemon=True)
        self._thread.start()

    @override
    def print_above(self, write: Callable[[], None]) -> None:
        with self._lock:
            self._put(CLEAR)
            write()
            self._draw()

    def close(self) -> None:
        """Remove the bar."""
        self._is_over.set()
        for handler in self._handlers:
            handler.live_bar = None
        self._thread.join(timeout=2 * SECONDS_BETWEEN)
        if not self._thread.is_alive():  # otherwise the terminal is blocked
            self._put(CLEAR)

    def _run(self) -> None:
        while not self._is_over.wait(SECONDS_BETWEEN):
            with self._lock:
                self._draw()

    def _draw(self) -> None:
        if not self._is_over.is_set():
            width = columns(sys.stderr) - 1
            self._put(f"{CLEAR}{render(self._view(), width, ascii_only=self._ascii_only)}\r")

    def _put(self, text: str) -> None:
        with contextlib.suppress(OSError):  # nobody may be watching
            os.write(sys.stderr.fileno(), text.encode(sys.stderr.encoding or "utf-8", errors="replace"))


@contextlib.contextmanager
def bar_shown(view: Callable[[], View], *, is_main: bool) -> Iterator[None]:
    """Show a bar on rank 0 until the block ends, if there is a terminal for it."""
    if not is_main or not is_live(sys.stderr):
        yield
        return
    bar = Bar(view)
    try:
        yield
    finally:
        bar.close()
