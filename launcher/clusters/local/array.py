"""`zeromt launch local --array`: the parts of a command on this machine, then their merge."""

import os
import signal
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from configs.process.signals import STOPPED
from configs.process.streams import note
from launcher.jobs.job import share_of
from launcher.machine.supervise import Supervisor


def run_array(supervisor: Supervisor, words: Sequence[str], parts: int, *, at_a_time: int) -> int:
    """Run a command in parts.

    Args:
        supervisor: runs the parts; its signal handlers are in place.
        words: the command's name, then its arguments.
        parts: how many.
        at_a_time: parts that run side by side.

    Returns:
        0; 75 stopped on request; or the exit code of the first part, or of the merge, that failed, 1 if a signal killed
        it. Then no other is begun, and those that run come to their end.
    """
    codes: list[int] = []

    def run(part: str | None) -> None:
        if any(codes):
            return
        code = supervisor.run([sys.executable, "-P", "-m", "zeromt", *share_of(words, part)], os.environ)
        if code and supervisor.was_stopped:
            code = STOPPED
        elif code:
            how = f"ended with exit code {code}" if code > 0 else f"was killed by {signal.Signals(-code).name}"
            note(f"{words[0]} --{'merge' if part is None else f'part {part}'} {how}")
        codes.append(max(code, 1) if code else 0)

    with ThreadPoolExecutor(at_a_time) as pool:
        list(pool.map(run, [f"{number + 1}/{parts}" for number in range(parts)]))
    run(None)
    return next(filter(None, codes), 0)
