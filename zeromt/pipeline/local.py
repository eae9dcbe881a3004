"""Steps on this machine, one after the other: each is a process of its own."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from launcher.machine.supervise import Supervisor
from zeromt.pipeline.work import Work, held


class Local:
    """Runs steps on this machine."""

    at_once = 1

    def __init__(self, supervisor: Supervisor) -> None:
        """Make one; the supervisor, whose signal handlers are in place, passes requests to stop on."""
        self._supervisor = supervisor

    def launcher(self, job: str) -> Sequence[str]:
        """The words behind `zeromt launch`."""
        return ["local"]

    def left(self, job: str, lock: Path) -> Sequence[str]:
        """None, once the lock is free that what was begun holds."""
        with held(lock):
            return []

    def run(self, work: Work) -> int:
        """Run a step.

        Returns:
            Its exit code; 75 if it was asked to stop.
        """
        program = [sys.executable, "-P", "-m", "zeromt", *work.words[1:]] if work.is_zeromt else work.words
        start = [sys.executable, "-P", "-m", "zeromt.pipeline.start", str(os.getpid())]
        words = [*start, str(work.lock), str(work.log), str(work.stdout or ""), *program]
        code = self._supervisor.run(words, dict(os.environ))
        return 75 if self._supervisor.was_stopped and code else code
