"""Steps on this machine, one after the other: each command is a process of its own."""

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from launcher.machine.supervise import Supervisor
from zeromt.pipeline.recipe import Pipeline
from zeromt.pipeline.work import Work, held, work_of


class Local:
    """Runs steps on this machine."""

    at_once = 1

    def __init__(self, supervisor: Supervisor) -> None:
        """Make one; the supervisor, whose signal handlers are in place, passes requests to stop on."""
        self._supervisor = supervisor

    def work(self, pipeline: Pipeline, name: str, job: str) -> Work:
        """See `Runner`. Parts run one after the other, then their merge."""
        step, words = pipeline.steps[name], pipeline.words(name)
        commands = [words]
        if step.is_zeromt("train"):
            commands = [["zeromt", "launch", "local", *words[2:3], *shlex.split(step.launch), *words[3:]]]
        elif step.parts is not None:
            shares = [*(["--part", f"{number + 1}/{step.parts}"] for number in range(step.parts)), ["--merge"]]
            commands = [[*words[:2], *share, *words[2:]] for share in shares]
        return work_of(pipeline, name, commands, step.stdout and pipeline.filled(step.stdout, name))

    def left(self, job: str, lock: Path) -> Sequence[str]:
        """None, once the lock is free that what was begun holds."""
        with held(lock):
            return []

    def run(self, work: Work) -> int:
        """See `Runner`."""
        code = 0
        for words in work.commands:
            program = [sys.executable, "-P", "-m", "zeromt", *words[1:]] if words[0] == "zeromt" else words
            start = [sys.executable, "-P", "-m", "zeromt.pipeline.start", str(os.getpid())]
            files = [str(work.lock), str(work.log), str(work.stdout or "")]
            code = self._supervisor.run([*start, *files, *program], dict(os.environ))
            if code:
                return 75 if self._supervisor.was_stopped else code
        return code
