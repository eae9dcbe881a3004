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
from trainer.terminal.bar import View, bar_shown
from trainer.terminal.forecast import Outlook


def test_stopped_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after Ctrl-S: lines go on to their file, and the run ends: whoever waited would wait for ever."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    draws, outlook = threading.Event(), Outlook(fraction=0.5, share="", seconds_left=None, seconds_per_update=None)

    def view() -> View:
        draws.set()
        return View(step=5, last_step=10, outlook=outlook, activity=None)

    end, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (50, 80))
    with os.fdopen(end, "rb", buffering=0) as shown, os.fdopen(terminal, "w") as stderr:
        monkeypatch.setattr(sys, "stderr", stderr)
        with (tmp_path / "log").open("w") as file:
            monkeypatch.setattr(sys, "stdout", file)
            handler = logging.StreamHandler(file)
            monkeypatch.setattr(logging.root, "handlers", [handler])
            with bar_shown(view, is_main=True):
                termios.tcflow(terminal, termios.TCOOFF)
                assert draws.wait(PATIENCE)
                for number in range(1000):
                    logging.getLogger("trainer").warning("step %d", number)
        [thread] = [one for one in threading.enumerate() if one.name == "bar"]
        termios.tcflow(terminal, termios.TCOON)
        while b"5 of 10" not in shown.read(400):
            assert thread.is_alive(), "it was in the middle of it"
        thread.join(PATIENCE)
    assert (tmp_path / "log").read_text().splitlines()[-1] == "step 999"
