"""`zeromt launch local --array`: the parts of a command on this machine, then their merge."""

import os
import signal
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from configs.process.signals import STOPPED
from configs.process.streams import note
from launcher.jobs.job import command_of
from launcher.machine.supervise import Supervisor
from launcher.options.command import InParts

_ENTRY = "zeromt.python.child"
"""Starts `zeromt` as a child that the kernel asks to stop when this process ends, even by SIGKILL."""


def run_array(supervisor: Supervisor, array: InParts, environment: Mapping[str, str], *, at_a_time: int) -> int:
    """Run a command in parts.

    Args:
        supervisor: runs the parts; its signal handlers are in place.
        array: the command, and how many parts.
        environment: of the parts.
        at_a_time: parts that run side by side.

    Returns:
        0; 75 stopped on request; or the exit code of the first part, or of the merge, that failed, 1 if a signal killed
        it. Then no other is begun, and those that run come to their end.
    """
    codes: list[int] = []

    def run(part: str | None) -> None:
        if any(codes):
            return
        code = supervisor.run(command_of(array.words, part, entry=(_ENTRY, str(os.getpid()))), environment)
        if code and supervisor.was_stopped:
            code = STOPPED
        elif code:
            how = f"ended with exit code {code}" if code > 0 else f"was killed by {signal.Signals(-code).name}"
            note(f"{array.words[0]} --{'merge' if part is None else f'part {part}'} {how}")
        codes.append(max(code, 1) if code else 0)

    with ThreadPoolExecutor(at_a_time) as pool:
        list(pool.map(run, [f"{number + 1}/{array.number}" for number in range(array.number)]))
    run(None)
    return next(filter(None, codes), 0)
