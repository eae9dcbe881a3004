"""`zeromt status`, `stop` and `log`: watch a run, and stop it, from another process."""

import codecs
import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO

from configs import UserError
from configs.process.files import naming
from configs.process.files.inside import opened
from configs.process.streams import note, tell
from configs.process.terminal import columns, escaped, unfiltered
from launcher.monitoring.run_status import ACTIVE, RunStatus, read_overview, read_run
from launcher.monitoring.run_table import look, runs_in, table
from launcher.monitoring.status_lines import to_json, to_lines
from launcher.slurm.queue import JOB_ID, cancel
from launcher.slurm.record import RunsJob, job_of_run
from trainer.runs.layout import LAUNCH_LOCK, LOGS, RUN_LOCK, STATUS_FILE, STOP_FILE
from trainer.runs.run_lock import is_locked
from trainer.runs.status import read_status

_LOOK_SECONDS = 0.2
_RUNS = "runs"
"""The folder whose runs are shown where none is named."""
_LINE_SECONDS = 10.0


def status(*, run: str | None, as_json: bool) -> int:
    """`zeromt status`: print what a run is doing, or the runs of a folder as a table.

    Args:
        run: a run's folder, or one that has runs in it; by default `runs`, or this folder.
        as_json: print JSON: an object, or a list of them.

    Raises:
        UserError: there is no run.
    """
    folder = Path(run or (_RUNS if Path(_RUNS).is_dir() else "."))
    with naming("RUN"):
        runs = [] if (folder / STATUS_FILE).exists() else runs_in(folder)
        if runs:
            width = columns(sys.stdout) if sys.stdout.isatty() else sys.maxsize
            print(json.dumps([to_json(look(one)) for one in runs]) if as_json else table(folder, runs, width=width))
            return 0
        if run is None:
            raise UserError(f"RUN: there is no run in {folder}; give a run's folder, or one with runs in it")
        overview = read_overview(folder)
        if overview.status.state == "empty" and (folder / "index.json").is_file():
            raise UserError(f"RUN: {run!r} is a dataset; `zeromt inspect {run}` shows it")
    print(json.dumps(to_json(overview)) if as_json else "\n".join(to_lines(overview)))
    return 0


def stop(*, run: str, wait: bool) -> int:
    """`zeromt stop`: ask a run to save and stop, and wait until it has. Waiting jobs and arrays are cancelled.

    Returns:
        0: stopped or finished, or asked to with --no-wait; 1: the run ended in another way.

    Raises:
        UserError: it is not running, or its folder cannot be written.
    """
    folder = Path(run)
    with naming("RUN"):
        status = read_run(folder)
    if status.state not in ACTIVE and _cancel(folder):
        return 0
    if status.state not in ACTIVE:
        raise UserError(f"RUN: {run!r} is not running; its state is {status.state}")
    request = folder / STOP_FILE
    try:
        opened(request, "ab").close()
    except OSError as error:
        raise UserError(
            f"RUN: {str(request)!r} cannot be written: {error.strerror}; choose a folder that can be written"
        ) from error
    if not wait:
        note(f"{run}: asked to save and stop")
        return 0
    status = _wait(folder)
    request.unlink(missing_ok=True)  # of a run that ended before it looked
    at = f" at step {status.step}" if status.step is not None else ""
    note(f"{run}: {status.state}{at}" + (f": {status.error}" if status.error else ""))
    return 0 if status.state in ("stopped", "finished") else 1


def log(*, run: str, follow: bool) -> int:
    """`zeromt log`: print the output of a run's job, or of the ranks of its last start.

    Raises:
        UserError: there is no output, or a file of it is no plain file.
    """
    folder = Path(run)
    with naming("RUN"):
        job = _job(folder)
    logs = folder / LOGS
    if job is None or not JOB_ID.fullmatch(job.id):
        shown = newest_logs(logs)
    else:
        shown = sorted([*logs.glob(f"*-{job.id}.out"), *logs.glob(f"*-{job.id}_*.out")])
    if not shown:
        raise UserError("RUN: it has no log yet; a run has one when it has started")
    for file in shown:
        opened(file).close()
    return _run(["tail", *(["-F"] if follow else []), "-n", "+1", "--", *map(str, shown)])


def newest_logs(logs: Path) -> list[Path]:
    """The ranks' log files of the last start, of each node that has some.

    Args:
        logs: folder of logs in the run's.
    """
    if not logs.is_dir():
        return []
    starts = [
        (path.stat().st_mtime, path)
        for path in (*logs.glob("*/"), *logs.glob("node-*/*/"))
        if any(path.glob("attempt_*"))
    ]
    newest = {path.parent: path for _, path in sorted(starts)}
    return sorted(file for path in newest.values() for file in path.rglob("std*.log") if file.stat().st_size)


def _job(folder: Path) -> RunsJob | None:
    return job_of_run(folder, read_status(folder / STATUS_FILE))


def _run(command: list[str]) -> int:
    """Run a command; what it prints passes through ours where that is a terminal, which escapes it. Its exit code."""
    pipes = [subprocess.PIPE if stream.isatty() else None for stream in (sys.stdout, sys.stderr)]
    with subprocess.Popen(command, stdout=pipes[0], stderr=pipes[1]) as child:
        passing = [
            threading.Thread(target=_pass_on, args=(pipe, stream), daemon=True)
            for pipe, stream in ((child.stdout, sys.stdout), (child.stderr, sys.stderr))
            if pipe is not None
        ]
        for thread in passing:
            thread.start()
        for thread in passing:
            thread.join()
    return child.returncode


def _pass_on(pipe: IO[bytes], stream: IO[str]) -> None:
    decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
    while data := pipe.read1(1 << 16):  # type: ignore[attr-defined]
        stream.write(decoder.decode(data))
        stream.flush()


def _cancel(folder: Path) -> bool:
    """Cancel a run's jobs that are waiting, and those of an array, whose tasks see no file STOP; False for none."""
    job = _job(folder)
    if job is None:
        return False
    numbers = job.to_cancel()
    for number in reversed(numbers):  # otherwise the next one would begin when the one before it is gone
        job.check_owned(number)
        cancel(number)
        what = "is cancelled" if job.is_array else "was waiting, and is taken out of the queue"
        note(f"{folder}: job {number} {what}")
    return bool(numbers)


def _wait(folder: Path) -> RunStatus:
    """Wait until no process writes the run any more, so that it can be started again, printing progress."""
    begin = said = time.monotonic()
    is_terminal = sys.stderr.isatty()
    while (status := read_run(folder)).state in ACTIVE or is_locked(folder, LAUNCH_LOCK) or is_locked(folder, RUN_LOCK):
        now = time.monotonic()
        at = f" (step {status.step})" if status.step is not None else ""
        line = f"zeromt: waiting for {folder} to save and stop{at}, {now - begin:.0f} s"
        if is_terminal:
            print(f"\r{escaped(line)}", end="", file=unfiltered(sys.stderr), flush=True)
        elif now - said >= _LINE_SECONDS:
            tell(line)
            said = now
        time.sleep(_LOOK_SECONDS)
    if is_terminal:
        print(file=sys.stderr)
    return status
