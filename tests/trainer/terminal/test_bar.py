"""A terminal that takes nothing holds up the bar alone."""

import logging
import os
import pty
import sys
import termios
import threading
from pathlib import Path

import pytest

from tests.waiting import PATIENCE
from trainer.terminal.bar import Bar, View
from trainer.terminal.forecast import Outlook
from trainer.terminal.lines import LogHandler


def view() -> View:
    outlook = Outlook(fraction=0.5, share="", seconds_left=None, seconds_per_update=None)
    return View(step=5, last_step=10, outlook=outlook, activity=None)


def test_stopped_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after Ctrl-S: lines go on to their file, and the run ends: whoever waited would wait for ever."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    end, terminal = pty.openpty()
    with (
        os.fdopen(end, "rb", buffering=0) as shown,
        os.fdopen(terminal, "w") as stderr,
        (tmp_path / "log").open("w") as file,
    ):
        monkeypatch.setattr(sys, "stderr", stderr)
        handler = LogHandler(file)
        monkeypatch.setattr(logging.root, "handlers", [handler])
        termios.tcflow(terminal, termios.TCOOFF)
        draws = threading.Event()
        bar = Bar(lambda: draws.set() or view())  # type: ignore[func-returns-value]
        assert draws.wait(PATIENCE)
        for number in range(1000):
            handler.emit(logging.makeLogRecord({"msg": f"step {number}"}))
        bar.close()
        assert bar._thread.is_alive(), "it is held up"
        termios.tcflow(terminal, termios.TCOON)
        assert b"training" in shown.read(200), "the thread was in the middle of it"
        bar._thread.join()
    assert (tmp_path / "log").read_text().splitlines()[-1] == "step 999"
