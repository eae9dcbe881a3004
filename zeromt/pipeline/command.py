"""`zeromt pipeline PIPELINE`: run, show or clean."""

import contextlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from configs.errors import UserError
from configs.process.environment import restored_environment
from configs.process.files import disk_errors
from configs.process.progress import say
from configs.process.text import visible
from configs.schema import RunConfig
from launcher.machine.supervise import Supervisor
from trainer.runs.run_lock import RunLock, RunLockedError
from zeromt.pipeline import report
from zeromt.pipeline.driver import Driver
from zeromt.pipeline.keys import Decision, Keys, Need
from zeromt.pipeline.local import Local
from zeromt.pipeline.recipe import Pipeline
from zeromt.pipeline.records import RECORDS, Records
from zeromt.pipeline.slurm import Slurm
from zeromt.pipeline.work import Runner
from zeromt.planning.command import on_one_gpu

CLEAN = "clean"
_ASKED = {"local": "the steps to stop", "slurm": "those that wait for jobs to stop, and no job"}
"""What a request to stop asks."""
_SHOWN = {Need.RUN: "runs", Need.MAYBE: "may run", Need.DONE: "is done", Need.USED: "is given"}


@restored_environment()
def run(*, pipeline: str, words: Sequence[str], dry_run: bool) -> int:
    """Run the steps whose results are missing or would be others, or show them; or clean.

    Args:
        pipeline: its file, or the name of a shipped one; or `clean`, and the file is the first of the words.
        words: names of the steps that are wanted, by default all, and settings of the file.
        dry_run: show what would be done, and why.

    Returns:
        0; 75 stopped on request; 2 refused; 1 a step failed.

    Raises:
        UserError: the file, a setting or an input is wrong, or another process drives the pipeline.
    """
    is_clean = pipeline == CLEAN
    if is_clean and not words:
        raise UserError("PIPELINE: none given to clean; give a pipeline's file")
    file, *words = words if is_clean else [pipeline, *words]
    read = Pipeline.read(file, [word for word in words if "=" in word])
    names = read.wanted([word for word in words if "=" not in word])
    return clean(read, dry_run=dry_run) if is_clean else drive(read, names, dry_run=dry_run)


def drive(pipeline: Pipeline, names: Sequence[str], *, dry_run: bool) -> int:
    """Run some steps, or show what would be done."""
    with Supervisor(_ASKED[pipeline.place.kind]) as supervisor:
        driver = Driver(pipeline, names, _runner(pipeline, supervisor), supervisor)
        driver.check()
        if dry_run:
            return _show(pipeline, driver.plan(), driver.settings)
        with locked(pipeline):
            code = driver.drive()
            file = report.write(pipeline.folder)
    if code == 0:
        say(f"{pipeline.folder}: {driver.num_run} of {len(names)} steps were run; all are done")
    say(f"report: {visible(str(file))}")
    return code


def clean(pipeline: Pipeline, *, dry_run: bool) -> int:
    """Remove results that were put aside, and those that need not be kept and that no step will read."""
    with locked(pipeline):
        paths = list(_removable(pipeline))
        total = 0
        for path in paths:
            size = _bytes(path)
            total += size
            say(f"{'would remove' if dry_run else 'removed'} {path} ({size / 1e6:,.1f} MB)")
            if not dry_run:
                with disk_errors("output", path.parent):
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
    say(f"{len(paths)} results, {total / 1e6:,.1f} MB")
    return 0


@contextlib.contextmanager
def locked(pipeline: Pipeline) -> Iterator[None]:
    """Hold the pipeline's lock.

    Raises:
        UserError: another process drives it.
    """
    folder = pipeline.folder / RECORDS
    with disk_errors("output", pipeline.folder):
        folder.mkdir(parents=True, exist_ok=True)
    lock = RunLock(folder, "driver.lock")
    try:
        lock.acquire(patience_seconds=2.0)
    except RunLockedError as error:
        who = str(error).partition(" is being written by ")[2].partition(";")[0]
        raise UserError(
            f"PIPELINE: {pipeline.folder} is driven by {who}; one driver at a time: stop it, or give another name=..."
        ) from error
    try:
        yield
    finally:
        lock.release()


def _runner(pipeline: Pipeline, supervisor: Supervisor) -> Runner:
    if pipeline.place.kind == "slurm":
        return Slurm(supervisor, pipeline)
    return Local(supervisor, cores=pipeline.place.cores, cards=pipeline.place.cards)


def _show(pipeline: Pipeline, plan: Mapping[str, Decision], settings: Mapping[str, RunConfig]) -> int:
    """Print what would be done with each step, why, and what training would take."""
    width, hours = max(map(len, plan)), 0.0
    for name, decision in plan.items():
        why = f": {decision.why}" if decision.why else ""
        needs = f" <- {', '.join(pipeline.needs[name])}" if pipeline.needs[name] else ""
        is_planned = pipeline.steps[name].is_zeromt("train") and decision.need in (Need.RUN, Need.MAYBE)
        estimate = on_one_gpu(settings[name]) if is_planned else None
        takes = (
            "" if estimate is None else f" [{estimate.gpu_hours:.2g} h, {estimate.saving.bytes / 1e9:.2g} GB a save]"
        )
        hours += 0.0 if estimate is None else estimate.gpu_hours
        say(f"{name:{width}} {_SHOWN[decision.need]}{why}{needs}{takes}")
    if hours:
        say(f"training: {hours:.2g} hours on one A100, as `zeromt plan` estimates")
    free = shutil.disk_usage(_existing(pipeline.folder)).free
    say(f"{pipeline.folder}: {_bytes(pipeline.folder) / 1e9:,.2f} GB now, {free / 1e9:,.1f} GB free")
    return 0


def _removable(pipeline: Pipeline) -> Iterator[Path]:
    from zeromt.pipeline.digests import Digests

    records = Records(pipeline.folder)
    yield from records.old()
    plan = Keys(pipeline, records, Digests(records.folder / "digests.json")).plan(list(pipeline.steps))
    for name, step in pipeline.steps.items():
        readers = [plan[other].need for other in pipeline.steps if name in pipeline.needs[other]]
        if not step.keep and plan[name].need == Need.DONE and all(need == Need.DONE for need in readers):
            yield from (path for path in pipeline.results(name).values() if path.exists())


def _existing(path: Path) -> Path:
    return path if path.exists() else _existing(path.parent)


def _bytes(path: Path) -> int:
    if not path.is_dir():
        return path.stat().st_size if path.exists() else 0
    return sum(one.lstat().st_size for one in path.rglob("*") if one.is_file())
