"""Runs the steps of a pipeline whose results are missing or would be others, each as soon as it can."""

import json
import os
import re
import secrets
import shutil
import socket
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path

import yaml
from tqdm import tqdm

from configs.errors import UserError
from configs.load import load_run
from configs.process.files import disk_errors, inside
from configs.process.progress import say
from configs.process.signals import STOPPED
from configs.process.streams import note
from launcher.machine.supervise import Supervisor
from trainer.runs.status import EXIT_CODES
from zeromt.pipeline.digests import Digests
from zeromt.pipeline.keys import NEVER, Decision, Keys, Need
from zeromt.pipeline.options import GRAPH_FILE
from zeromt.pipeline.recipe import Pipeline
from zeromt.pipeline.records import Record, Records, job_name, key_of
from zeromt.pipeline.start import CANNOT_START
from zeromt.pipeline.work import Runner, Work

REFUSED = EXIT_CODES["refused"]
_LINES_OF_LOG = 8


class Driver:
    """Drives a pipeline; its folder's lock is held."""

    def __init__(self, pipeline: Pipeline, names: Sequence[str], runner: Runner, supervisor: Supervisor) -> None:
        """Make one.

        Args:
            pipeline: its steps.
            names: of the steps that are wanted, and those that they need, in order.
            runner: where they run.
            supervisor: knows of requests to stop; its signal handlers are in place.
        """
        self._pipeline, self._names, self._runner, self._supervisor = pipeline, names, runner, supervisor
        self._records = Records(pipeline.folder)
        self._digests = Digests(self._records.folder / "digests.json")
        self._keys = Keys(pipeline, self._records, self._digests)
        self._failed: dict[str, int] = {}
        self.num_run = 0

    def drive(self) -> int:
        """Run what is to be run.

        Returns:
            0; 75 stopped on request; of the first step that failed, 2 if zeromt refused it or its program cannot be
            started, else 1.
        """
        self._check_left()
        self._write_graph()
        running: dict[Future[int], tuple[str, Record, float]] = {}
        with ThreadPoolExecutor(self._runner.at_once) as pool:
            while True:
                ready = self._ready({name for name, *_ in running.values()})
                for name, decision in ready[: self._runner.at_once - len(running)]:
                    work, record = self._begin(name, decision)
                    running[pool.submit(self._runner.run, work)] = (name, record, time.monotonic())
                if not running:
                    break
                for done in _first(running):
                    name, record, since = running.pop(done)
                    self._end(name, record, done.result(), time.monotonic() - since)
        self._digests.save()
        if self._supervisor.was_stopped:
            note(f"stopped; `zeromt pipeline {self._pipeline.file}` goes on from here")
            return STOPPED
        return next(iter(self._failed.values()), 0)

    def _write_graph(self) -> None:
        """Keep what the steps are, for those who look at the results without the recipe."""
        steps = {
            name: {"needs": list(self._pipeline.needs[name]), "use": step.use}
            for name, step in self._pipeline.steps.items()
        }
        with disk_errors("output", self._records.folder):
            inside.write_text(self._pipeline.folder / GRAPH_FILE, json.dumps(steps, indent=1))

    def plan(self) -> dict[str, Decision]:
        """What would be done now."""
        return self._keys.plan(self._names)

    def _ready(self, busy: set[str]) -> list[tuple[str, Decision]]:
        """Steps that are to run and whose inputs are there."""
        if self._failed or self._supervisor.was_stopped:
            return []
        plan = self._keys.plan(self._names)
        settled = {name for name, one in plan.items() if one.need in (Need.DONE, Need.USED)} - busy
        return [
            (name, one)
            for name, one in plan.items()
            if one.need == Need.RUN
            and name not in busy
            and all(need in settled or need in self._pipeline.inputs for need in self._pipeline.needs[name])
        ]

    def check(self) -> None:
        """Refuse what is missing, and settings that are wrong, before the first step runs.

        Raises:
            UserError: naming the input, or the step and the field.
        """
        for name in self._names:
            for need in self._pipeline.needs[name]:
                is_given = need in self._pipeline.inputs or self._pipeline.steps[need].use is not None
                if is_given and self._keys.identity(need) is None:
                    where = f"inputs.{need}" if need in self._pipeline.inputs else f"steps.{need}.use"
                    raise UserError(f"{where}: {self._pipeline.path(need)!r} is not there; give a file or a folder")
            for text in self._pipeline.steps[name].plain_texts():
                if Path(text).is_file() or (os.sep in text and Path(text).exists()):
                    raise UserError(
                        f"steps.{name}: {text!r}: is no input, so its content would not count; name it in `inputs`, "
                        "and refer to it by {NAME}"
                    )
            if self._pipeline.steps[name].is_zeromt("train", "prepare"):
                self._check_settings(name)

    def _check_settings(self, name: str) -> None:
        words = self._pipeline.words(name)
        settings = [word for word in words[3:] if re.match(r"[\w.\[\]]+=", word)]
        with tempfile.TemporaryDirectory() as folder:
            if "{config}" in self._pipeline.steps[name].words[2:3]:
                words[2] = str(self._write_config(name, Path(folder)))
            try:
                load_run(words[2], settings)
            except UserError as error:
                lines = str(error).splitlines()
                raise UserError("\n".join(f"steps.{name}: {line}" for line in lines)) from error

    def _check_left(self) -> None:
        """Refuse to begin while jobs of an earlier driver write what would be put aside.

        Raises:
            UserError: naming the step and the jobs.
        """
        for name in self._names:
            record = self._records.read(name)
            if record is None or record.code is not None or record.key == key_of(self._keys.material(name)):
                continue
            if jobs := self._runner.left(job_name(name, record), self._records.folder / f"{name}.lock"):
                raise UserError(
                    f"steps.{name}: has changed, and its job {', '.join(jobs)} of before is still in the queue; "
                    f"`scancel {' '.join(jobs)}` ends it, or wait until it has ended"
                )

    def _write_config(self, name: str, folder: Path) -> Path:
        file = folder / f"{name}.yaml"
        with disk_errors("output", folder):
            inside.write_text(file, yaml.safe_dump(self._pipeline.config(name), sort_keys=False, allow_unicode=True))
        return file

    def _begin(self, name: str, decision: Decision) -> tuple[Work, Record]:
        """Note that a step begins, once what was made of something else is out of its way."""
        record = self._records.read(name)
        if record is None or record.is_done or record.key != key_of(decision.material):
            self._records.put_aside(name, self._pipeline.movable(name))
            record = Record(material=decision.material, begun=time.time())
        if record.code is not None or not record.attempt:
            record.attempt = secrets.token_hex(6)
        work = self._runner.work(self._pipeline, name, job_name(name, record))
        record.words, record.code = self._pipeline.words(name), None
        self._continue(name)
        if self._pipeline.steps[name].config:
            self._write_config(name, self._records.folder)
        self._records.write(name, record)
        why = "" if decision.why == NEVER else f": {decision.why}"
        say(f"{name}: begins{why}")
        with disk_errors("output", work.log.parent), inside.opened(work.log, "a") as log:
            log.write(f"--- {time.strftime('%F %T')} {socket.gethostname()}{why}\n")
        self.num_run += 1
        return work, record

    def _continue(self, name: str) -> None:
        """Copy the run that a step goes on with, unless it has begun."""
        given, own = self._pipeline.steps[name].continues, self._pipeline.folder / name
        if given is not None and not own.exists():
            with disk_errors("output", own.parent):
                unfinished = own.with_name(f".{name}.copy")
                shutil.rmtree(unfinished, ignore_errors=True)
                shutil.copytree(self._pipeline.filled(given, name), unfinished)
                unfinished.rename(own)

    def _end(self, name: str, record: Record, code: int, seconds: float) -> None:
        """Note how a step ended."""
        record.seconds += seconds
        record.ended = time.time()
        lost = [str(path) for path in self._pipeline.results(name).values() if not path.exists()] if code == 0 else []
        record.code = 1 if code < 0 or lost else code
        if self._supervisor.was_stopped and code == STOPPED:
            record.code = None  # as if it had been killed: it goes on
        elif record.is_done:
            record.results = {part: one for part, one in self._keys.results(name).items() if one is not None}
            self._digests.save()
            say(f"{name}: done in {tqdm.format_interval(seconds)}")
        else:
            is_refused = code == CANNOT_START or (code == REFUSED and self._pipeline.steps[name].is_zeromt())
            self._failed[name] = REFUSED if is_refused else 1
            how = f"left nothing at {lost[0]}" if lost else f"failed with exit code {code}"
            note(f"error: step {name} {how}; its log is {self._records.folder / f'{name}.log'}")
            for line in _last_lines(self._records.folder / f"{name}.log"):
                note(f"{name} | {line}")
            note(f"once that is put right, `zeromt pipeline {self._pipeline.file}` goes on from there")
        self._records.write(name, record)


def _first(running: Iterable[Future[int]]) -> set[Future[int]]:
    """Those that end first; waited for in turns: Python handles a signal that comes just before a wait after it."""
    while not (done := wait(running, timeout=0.2, return_when=FIRST_COMPLETED).done):
        pass
    return done


def _last_lines(log: Path) -> list[str]:
    try:
        lines = inside.read_text(log, errors="replace", most=None).splitlines()
    except (OSError, UserError):
        return []
    return [line for line in lines if line.strip()][-_LINES_OF_LOG:]
