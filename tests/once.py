"""What is made once in a run of the tests, whichever of its processes asks for it first: datasets, and runs on them."""

import atexit
import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

_VARIABLE = "TESTS_MADE_ONCE"
"""Of the environment, which pytest's workers and what tests start inherit: the folder with all of it."""


def begin() -> Path:
    """The folder; the first process to ask makes it, and removes it at its end."""
    if _VARIABLE not in os.environ:
        root = tempfile.mkdtemp(prefix="zs-")  # short: it stands in lines that are cut to a width
        os.environ[_VARIABLE] = root
        atexit.register(_remove, root, os.getpid())
    return Path(os.environ[_VARIABLE])


def _remove(root: str, owner: int) -> None:
    if os.getpid() == owner:  # and is not forked from it
        shutil.rmtree(root, ignore_errors=True)


def once(name: str, make: Callable[[Path], object]) -> Path:
    """A folder that `make` was called with when it was new and empty; not to be written to.

    Where `make` fails, the next to ask tries again.
    """
    root = begin()
    folder, ready = root / name, root / f"{name}.ready"
    with (root / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ready.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            ready.touch()
    return folder
