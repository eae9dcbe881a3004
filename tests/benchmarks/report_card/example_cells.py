"""Cells that end in every way."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


def good(*, work: str, device: str) -> dict[str, Any]:
    Path(work, "left by a cell").touch()
    return {"device": device}


def absent(*, work: str, device: str) -> dict[str, Any]:
    return {"skipped": "no such library"}


def raising(*, work: str, device: str) -> dict[str, Any]:
    raise ValueError("as said here")


def crashing(*, work: str, device: str) -> dict[str, Any]:
    os.kill(os.getpid(), signal.SIGSEGV)
    return {}


def hanging(*, work: str, device: str, pids: str) -> dict[str, Any]:
    """Leaves its process id, and that of a process which it has started."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path(pids).write_text(f"{os.getpid()} {child.pid}")
    time.sleep(600)
    return {}


def waiting(*, work: str, device: str, folder: str, name: str) -> dict[str, Any]:
    """Takes until a file of that name is in the folder."""
    while not Path(folder, name).exists():
        time.sleep(0.05)
    return {}
