"""How a process with torch in it ends."""

import gc
import os
import sys

from configs.process.streams import leave_standard_streams

_abandoned: list[str] = []


def collect_nothing() -> None:
    """For `atexit`: keep the interpreter from collecting garbage among a million objects of torch when it ends.

    A Triton that is built with nanobind writes pages about leaks to stderr then, so in its presence all is collected.
    """
    triton = sys.modules.get("triton._C.libtriton")
    if triton is not None and type(triton.ir.builder).__module__ == "nanobind":
        gc.unfreeze()
    else:
        gc.freeze()


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
