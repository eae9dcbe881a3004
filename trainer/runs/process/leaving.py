"""How a rank's process ends."""

import os

from trainer.runs.process.streams import leave_standard_streams

_left_behind: list[str] = []


def leave_behind(name: str) -> None:
    """Something still runs in this process that its end must not wait for, such as a tracker's package."""
    _left_behind.append(name)


def leave(code: int) -> int:
    """The exit code, when all is saved. Where something was left behind, the process ends here.

    A package may wait without end in an exit handler of its own (wandb does, for a server that does not answer).
    """
    if _left_behind:
        leave_standard_streams()
        os._exit(code)
    return code
