"""Runs the steps of a pipeline whose results are missing or would be others, each as soon as it can."""

import fcntl
import json
import os
import re
import secrets
import shlex
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import yaml

from configs.errors import UserError
from configs.load import load_run
from configs.process.files import disk_errors, inside
from configs.process.progress import say
from configs.process.signals import STOPPED
from configs.process.streams import note
from launcher.machine.supervise import Supervisor
from launcher.options.parser import Parser, read_arguments
from launcher.options.slurm import add_launch_slurm
from launcher.slurm.profile import Profile, load_profile
from launcher.slurm.queue import jobs_named
from launcher.slurm.script import python_of
from zeromt.pipeline.keys import NEVER, Decision, Record, plan
from zeromt.pipeline.options import GRAPH_FILE
from zeromt.pipeline.recipe import RECORDS, Pipeline
from zeromt.pipeline.start import CANNOT_START

_LINES_OF_LOG = 8
AT_ONCE = {"local": 1, "slurm": 16}
"""Most steps that run at a time."""


class Driver:
    """Drives a pipeline; its folder's lock is held.

    Args:
        pipeline: its steps.
        supervisor: knows of requests to stop; its signal handlers are in place.

    Raises:
        UserError: the profile of the cluster, or a step's `launch`, has errors.
    """

    def __init__(self, pipeline: Pipeline, supervisor: Supervisor) -> None:
        self._pipeline, self._supervisor = pipeline, supervisor
        self._code = 0
        self.num_run = 0
        place = pipeline.place
        site = [] if place.site is None else ["--site", place.site]
        for key, value in place.settings.items():
            site += ["--set", f"{key}={json.dumps(value)}"]
        steps = pipeline.steps.items()
        self._options = {name: [*site, *shlex.split(step.launch)] for name, step in steps}
        self._profiles = {name: _profile(self._options[name]) for name, _ in steps} if place.kind == "slurm" else {}

    def check(self) -> None:
        """Refuse wrong settings, and paths that are not inputs, before the first step runs.

        Raises:
            UserError: naming the step and the field.
        """
        for name in self._pipeline.steps:
            for text in self._pipeline.plain_paths(name):
                raise UserError(
                    f"steps.{name}: {text!r}: is not an input, so its content would not count; "
                    "name it in `inputs`, and refer to it by {NAME}"
                )
            if not self._pipeline.steps[name].is_zeromt("train", "prepare"):
                continue
            words = self._pipeline.words(name)
            settings = [word for word in words[3:] if re.match(r"[\w.\[\]]+=", word)]
            with tempfile.TemporaryDirectory() as folder:
                if "{config}" in self._pipeline.steps[name].words[2:3]:
                    words[2] = str(Path(folder, f"{name}.yaml"))
                    self._write_config(name, Path(words[2]))
                try:
                    load_run(words[2], settings)
                except UserError as error:
                    lines = str(error).splitlines()
                    raise UserError("\n".join(f"steps.{name}: {line}" for line in lines)) from error

    def drive(self) -> int:
        """Run what is to be run.

        Returns:
            0; 75 stopped on request; 2 a step was refused; 1 a step failed.

        Raises:
            UserError: a job of before still writes what has changed.
        """
        planned = {name: one for name, one in plan(self._pipeline).items() if one.runs}
        for name, decision in planned.items():
            self._wait_for_left(name, decision)
        graph = {name: {"needs": self._pipeline.needs[name], "use": s.use} for name, s in self._pipeline.steps.items()}
        with disk_errors("output", self._pipeline.folder):
            inside.write_text(self._pipeline.folder / GRAPH_FILE, json.dumps(graph, indent=1))
        running: dict[Future[int], str] = {}
        at_once = AT_ONCE[self._pipeline.place.kind]
        with ThreadPoolExecutor(at_once) as pool:
            while planned:
                for name in list(planned):
                    is_ready = planned.keys().isdisjoint(self._pipeline.needs[name]) and name not in running.values()
                    if is_ready and len(running) < at_once and not self._code and not self._supervisor.was_stopped:
                        self._begin(name, planned[name])
                        running[pool.submit(self._run, name, planned[name].record)] = name
                if not running:
                    break
                while not (done := wait(running, timeout=0.2, return_when=FIRST_COMPLETED).done):
                    pass  # Python handles a signal that comes just before a wait after it
                for future in done:
                    name = running.pop(future)
                    self._end(name, planned.pop(name).record, future.result())
        if self._supervisor.was_stopped:
            note(f"stopped; `zeromt pipeline {self._pipeline.file}` continues from here")
            return STOPPED
        return self._code

    def _wait_for_left(self, name: str, decision: Decision) -> None:
        """Wait until what an earlier driver began here has ended; refuse to write while a job of another key does."""
        lock = self._pipeline.record(name, "lock")
        with disk_errors("output", lock.parent), inside.opened(lock, "ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
        before = Record.read(self._pipeline.record(name, "json"))
        if before is None or before.code is not None or before.key == decision.record.key or not self._profiles:
            return
        if jobs := jobs_named(before.job(name)):
            raise UserError(
                f"steps.{name}: has changed, and its job {', '.join(jobs)} of before is still in the queue; "
                f"`scancel {' '.join(jobs)}` ends it, or wait until it has ended"
            )

    def _write_config(self, name: str, file: Path) -> None:
        with disk_errors("output", file.parent):
            inside.write_text(file, yaml.safe_dump(self._pipeline.config(name), sort_keys=False, allow_unicode=True))

    def _begin(self, name: str, decision: Decision) -> None:
        """Note that a step begins, after what was made of something else is out of its way."""
        record, result = decision.record, self._pipeline.folder / name
        with disk_errors("output", result.parent):
            if not record.begun and result.exists():
                old = self._pipeline.folder / RECORDS / "old"
                old.mkdir(exist_ok=True)
                result.rename(old / f"{name}.replaced-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}")
        if record.code is not None:
            record.attempt, record.code = secrets.token_hex(6), None
        record.begun = record.begun or time.time()
        if self._pipeline.steps[name].config:
            self._write_config(name, self._pipeline.record(name, "yaml"))
        record.write(self._pipeline.record(name, "json"))
        why = "" if decision.why == NEVER else f": {decision.why}"
        say(f"{name}: begins{why}")
        log = self._pipeline.record(name, "log")
        with disk_errors("output", log.parent), inside.opened(log, "a") as file:
            file.write(f"--- {time.strftime('%F %T')} {socket.gethostname()}{why}\n")
        self.num_run += 1

    def _run(self, name: str, record: Record) -> int:
        """Run a step to its end; its exit code, 75 if it was asked to stop."""
        code = 0
        files = [self._pipeline.record(name, ending) for ending in ("lock", "log")]
        stdout = "" if self._profiles else self._pipeline.filled(self._pipeline.steps[name].stdout or "", name)
        for words in self.commands(name, record):
            program = [sys.executable, "-P", "-m", "zeromt", *words[1:]] if words[0] == "zeromt" else words
            start = [sys.executable, "-P", "-m", "zeromt.pipeline.start", str(os.getpid()), *map(str, files), stdout]
            if code := self._supervisor.run([*start, *program], dict(os.environ)):
                code = STOPPED if self._supervisor.was_stopped else code
                break
        return code

    def commands(self, name: str, record: Record) -> list[list[str]]:
        """What runs a step: one after the other here; on SLURM what sends its job, or its array, and waits for it."""
        step, words = self._pipeline.steps[name], self._pipeline.words(name)
        if not self._profiles:
            if step.is_zeromt("train"):
                return [["zeromt", "launch", "local", *words[2:3], *self._options[name], *words[3:]]]
            if step.parts is None:
                return [words]
            shares = [["--part", f"{number + 1}/{step.parts}"] for number in range(step.parts)]
            return [[*words[:2], *share, *words[2:]] for share in (*shares, ["--merge"])]
        launch = ["zeromt", "launch", "slurm", "--wait", *self._options[name]]
        launch += ["--job-name", record.job(name)]
        if step.is_zeromt("train"):
            return [[*launch, *words[2:]]]
        if step.stdout is not None:
            program = [python_of(self._profiles[name]), "-P", "-m", "zeromt"] if step.is_zeromt() else words[:1]
            words = ["sh", "-c", 'exec "$@" >"$0"', self._pipeline.filled(step.stdout, name), *program, *words[1:]]
        array = [] if step.parts is None else ["--array", str(step.parts)]
        return [[*launch, *array, "--", *words]]

    def _end(self, name: str, record: Record, code: int) -> None:
        """Note how a step ended."""
        result, log = self._pipeline.folder / name, self._pipeline.record(name, "log")
        is_lost = code == 0 and not result.exists()
        record.code = 1 if code < 0 or is_lost else code
        if self._supervisor.was_stopped and code == STOPPED:
            record.code = None  # as if it had been killed: it resumes
        elif record.code == 0:
            say(f"{name}: done")
        else:
            is_refused = code == CANNOT_START or (code == 2 and self._pipeline.steps[name].is_zeromt())
            self._code = self._code or (2 if is_refused else 1)
            how = f"left nothing at {result}" if is_lost else f"failed with exit code {code}"
            note(f"error: step {name} {how}; its log is {log}")
            lines = inside.read_text(log, errors="replace", most=None).splitlines()
            for line in [line for line in lines if line.strip()][-_LINES_OF_LOG:]:
                note(f"{name} | {line}")
            note(f"once that is put right, `zeromt pipeline {self._pipeline.file}` continues from there")
        record.write(self._pipeline.record(name, "json"))


def _profile(options: Sequence[str]) -> Profile:
    """The site's profile, with options of `zeromt launch slurm`."""
    parser = Parser(prog="zeromt launch slurm", add_help=False)
    add_launch_slurm(parser)
    given: dict[str, Any] = read_arguments(parser, options)
    return load_profile(given["site"], given["settings"], {name: given[name] for name in ("time", "gpus_per_node")})
