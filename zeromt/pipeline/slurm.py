"""Steps as jobs on SLURM, which know nothing of the driver and outlive it.

A try of a step has a name, which all its jobs bear. What sends them leaves their numbers in `.pipeline/NAME.jobs`, and
they leave their exit code in `.pipeline/NAME.code`. So the next driver finds what a killed one has sent, in the queue
or ended, without accounting. What sends a step comes to its end when the driver is killed, and holds the step's lock.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from configs.errors import UserError
from configs.process.files import inside
from configs.process.progress import say
from configs.process.signals import STOPPED
from configs.process.streams import note
from launcher.machine.supervise import Supervisor
from launcher.options.parser import Parser, read_arguments
from launcher.options.slurm import add_launch_slurm
from launcher.slurm.jobs import Single
from launcher.slurm.profile import Profile
from launcher.slurm.queue import submission_environment
from launcher.slurm.script import render_command
from launcher.slurm.submit import profile_of
from zeromt.pipeline.recipe import Pipeline
from zeromt.pipeline.records import RECORDS
from zeromt.pipeline.work import Work, held

ENDED = "ZEROMT_ENDED"
"""In a job's environment: the file for its exit code."""
_TURN_SECONDS = 0.5
_ASK_SECONDS = 60
_LINES = 8


class Slurm:
    """Sends steps to SLURM and waits for them."""

    at_once = 64

    def __init__(self, supervisor: Supervisor, pipeline: Pipeline) -> None:
        """Make one; SLURM is not asked before a step runs.

        Args:
            supervisor: knows of requests to stop; its signal handlers are in place.
            pipeline: its place names the site's profile.

        Raises:
            UserError: the profile has errors, or a step's `launch` has.
        """
        self._supervisor, self._records = supervisor, (pipeline.folder / RECORDS).absolute()
        place = pipeline.place
        settings = [f"{key}={json.dumps(value)}" for key, value in place.settings.items()]
        site = [] if place.site is None else ["--site", place.site]
        self._profile = [*site, *(word for one in settings for word in ("--set", one))]
        self._queue = _Queue(place.poll_seconds)
        _site(self._profile)
        for name, step in pipeline.steps.items():
            if _arguments(shlex.split(step.launch))["job_name"] is not None:
                raise UserError(f"steps.{name}.launch: --job-name: jobs are found by the driver's; leave it out")

    def launcher(self, job: str) -> Sequence[str]:
        """The words behind `zeromt launch`."""
        ended = f"environment.{ENDED}={json.dumps(str(self._file(job, 'code')))}"
        return ["slurm", "--job-name", job, *self._profile, "--set", ended]

    def left(self, job: str, lock: Path) -> Sequence[str]:
        """The jobs of a try that are in the queue."""
        with held(lock):
            return [number for number, name in self._queue.ask()[1].items() if name == job]

    def run(self, work: Work) -> int:
        """Send a step unless it was sent, and wait for its end.

        Returns:
            Its exit code; 75 if the driver was asked to stop, and then its jobs go on.
        """
        with held(work.lock) as lock:
            jobs, how = self._jobs(work.job), "is adopted"
            if not jobs and self._code(work.job) is None:
                if self._supervisor.was_stopped:
                    return STOPPED
                code, how = self._send(work, lock), "is sent"
                jobs = self._jobs(work.job)
                if not jobs:
                    return code or 1
        say(f"{work.name}: job {', '.join(jobs)} {how}")
        work.note_jobs(jobs)
        return self._wait(work, jobs)

    def _send(self, work: Work, lock: int) -> int:
        """Send a step; what does so comes to its end whatever happens to the driver."""
        for old in (*self._records.glob(f"{work.name}.*.jobs"), *self._records.glob(f"{work.name}.*.code")):
            old.unlink()
        words, script = [sys.executable, "-P", "-m", "zeromt", *work.words[1:]], ""
        if work.words[:2] != ["zeromt", "launch"]:
            words, script = ["sbatch", "--parsable"], self._script(work)
        with (
            tempfile.TemporaryFile("w+") as stdin,
            inside.opened(self._file(work.job, "jobs"), "a") as stdout,
            inside.opened(work.log, "a") as stderr,
        ):
            stdin.write(script)
            stdin.seek(0)
            return subprocess.run(
                words,
                env=submission_environment(os.environ),
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                pass_fds=[lock],
                start_new_session=True,
                check=False,
            ).returncode

    def _script(self, work: Work) -> str:
        """The batch script of a step that `zeromt launch` does not start; kept for people, without secrets."""
        site = _site(work.options)
        job = Single(
            folder=str(Path.cwd()),
            name=work.job,
            words=tuple(work.words),
            stdout="" if work.stdout is None else str(work.stdout),
        )
        log = str(work.log.absolute())
        inside.write_text(self._records / f"{work.name}.sh", render_command(site.without_values(), job, output=log))
        return render_command(site, job, output=log)

    def _wait(self, work: Work, jobs: Sequence[str]) -> int:
        """Wait until a step has ended well, or its jobs have left the queue."""
        gone: int | None = None
        while (code := self._code(work.job)) is None or code[0] != 0:
            if self._supervisor.was_stopped:
                note(f"{work.name}: job {', '.join(jobs)} goes on; `scancel {' '.join(jobs)}` would end it")
                return STOPPED
            number, queue = self._queue.ask()
            if any(job in queue for job in jobs):
                gone = None
            elif gone is None:
                gone = number
            elif number > gone:  # twice, because one that is being put back in the queue is not always listed
                return self._failed(work, jobs)
            time.sleep(_TURN_SECONDS)
        return 0

    def _failed(self, work: Work, jobs: Sequence[str]) -> int:
        """Note in a step's log what is known of a failure; returns the exit code."""
        code, job = self._code(work.job) or (1, "")
        if code == 0:
            return 0
        lines = [] if job else [f"job {', '.join(jobs)} left no exit code: it was cancelled, killed or out of time"]
        shown = ["squeue", "--noheader", "--states=all", "--jobs", ",".join(jobs), "--format", "job %i: %T"]
        lines += [line for line in _asked(shown) or () if "COMPLETED" not in line]
        outputs = [path for one in ([job] if job else jobs) for path in self._outputs(one)]
        if outputs:
            newest = max(outputs, key=lambda path: path.stat().st_mtime)
            lines += [f"{newest}:", *inside.read_text(newest, errors="replace", most=None).splitlines()[-_LINES:]]
        with inside.opened(work.log, "a") as log:
            log.writelines(f"{line}\n" for line in lines)
        return code

    def _outputs(self, job: str) -> list[Path]:
        """The files with the output of a job, or of an array's tasks, that was sent by `zeromt launch`."""
        patterns = [f"*/logs/*-{job}.out", f"*/logs/*-{job}_*.out"]
        folders = (self._records, self._records.parent)
        return [path for folder in folders for pattern in patterns for path in folder.glob(pattern)]

    def _file(self, job: str, suffix: str) -> Path:
        return self._records / f"{job}.{suffix}"

    def _jobs(self, job: str) -> list[str]:
        """The jobs of a try: those that it says it has sent, and those in the queue that bear its name."""
        file = self._file(job, "jobs")
        said = re.findall(r"^\d+", inside.read_text(file), re.MULTILINE) if inside.is_listed(file) else []
        return list(dict.fromkeys([*said, *(number for number, name in self._queue.ask()[1].items() if name == job)]))

    def _code(self, job: str) -> tuple[int, str] | None:
        """The exit code that a try has left, and the job that left it; of an array, a part that failed does so too."""
        file = self._file(job, "code")
        found = re.fullmatch(r"(\d+) (\w+)\n", inside.read_text(file)) if inside.is_listed(file) else None
        return None if found is None else (int(found[1]), found[2])


class _Queue:
    """This user's jobs in the queue, asked for rarely, and for all steps at once."""

    def __init__(self, poll_seconds: int) -> None:
        self._lock = threading.Lock()
        self._poll_seconds, self._next = poll_seconds, 0.0
        self._number, self._jobs = 0, dict[str, str]()

    def ask(self) -> tuple[int, Mapping[str, str]]:
        """The newest answer: its number, and the names of jobs by their numbers.

        Raises:
            UserError: there is no squeue here, or it has never answered.
        """
        with self._lock:
            if time.monotonic() >= self._next:
                lines = _asked(["squeue", "--noheader", "--user", str(os.getuid()), "--format", "%F|%j"])
                self._next = time.monotonic() + self._poll_seconds
                if lines is None and not self._number:
                    raise UserError("squeue: no answer; try again when the controller answers")
                if lines is not None:
                    self._number += 1
                    self._jobs = {number: name for number, _, name in (line.partition("|") for line in lines)}
            return self._number, self._jobs


def _asked(words: Sequence[str]) -> list[str] | None:
    """What one of SLURM's commands prints; None if it fails or does not answer."""
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_ASK_SECONDS, check=False
        )
    except FileNotFoundError as error:
        raise UserError(f"{words[0]}: no such command; use a machine that submits jobs, or --dry-run") from error
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.splitlines() if done.returncode == 0 else None


def _site(options: Sequence[str]) -> Profile:
    """The site's profile, with options of `zeromt launch slurm`."""
    return profile_of(**_arguments(options))[0]


def _arguments(options: Sequence[str]) -> dict[str, Any]:
    parser = Parser(prog="zeromt launch slurm", add_help=False)
    add_launch_slurm(parser)
    return read_arguments(parser, ["none", *options])
