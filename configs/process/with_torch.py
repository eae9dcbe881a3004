"""A process with torch in it: how its imports take less time, and how it ends. Imports nothing heavy."""

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from configs.process.streams import leave_standard_streams

UNASKED = ("mlflow", "wandb")
"""Packages that DeepSpeed imports if they are installed, which takes seconds and starts threads that a fork loses."""


@contextmanager
def quick_imports() -> Iterator[None]:
    """Turn the garbage collector off in this block, and exempt from it for good all objects that exist at its end.

    A rank's imports make a million objects that stay for ever; scanning them took an eighth of the imports' time, and
    half a second in every later full collection, at a rewind or while training. In the block, packages in `UNASKED`
    appear not to be installed, unless they are imported already; a tracker can import them afterwards.
    """
    gc.disable()
    hidden = [name for name in UNASKED if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in hidden:
            if sys.modules.get(name) is None:
                sys.modules.pop(name, None)
        gc.freeze()
        gc.enable()


_abandoned: list[str] = []


def abandon_at_exit(name: str) -> None:
    """Exit without joining what still runs under this name, such as a tracker's package."""
    _abandoned.append(name)


def leave(code: int) -> int:
    """The exit code, when all is saved. Where something was abandoned, the process ends here.

    A package may wait without end in an exit handler of its own (wandb does, for a server that does not answer).
    """
    if _abandoned:
        leave_standard_streams()
        os._exit(code)
    return code
