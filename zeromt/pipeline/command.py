"""`zeromt pipeline PIPELINE`: run or show."""

import contextlib
from collections.abc import Iterator, Sequence

from configs.errors import UserError
from configs.process.environment import restored_environment
from configs.process.files import disk_errors
from configs.process.progress import say
from launcher.machine.supervise import Supervisor
from trainer.runs.run_lock import RunLock, RunLockedError
from zeromt.pipeline.driver import Driver
from zeromt.pipeline.keys import plan
from zeromt.pipeline.recipe import RECORDS, Pipeline

_ASKED = {"local": "the steps to stop", "slurm": "those that wait for jobs to stop, and no job"}
"""What a request to stop asks."""


@restored_environment()
def run(*, pipeline: str, settings: Sequence[str], dry_run: bool) -> int:
    """Run the steps whose results are missing or would be others, or show them.

    Args:
        pipeline: its file, or the name of a shipped one.
        settings: `key=value`, instead of the file's.
        dry_run: show what would be done, and why.

    Returns:
        0; 75 stopped on request; 2 refused; 1 a step failed.

    Raises:
        UserError: the file, a setting or an input is wrong, or another process drives the pipeline.
    """
    read = Pipeline.read(pipeline, settings)
    with Supervisor(_ASKED[read.place.kind]) as supervisor:
        driver = Driver(read, supervisor)
        planned = plan(read)
        driver.check()
        if dry_run:
            width = max(map(len, planned))
            for name, decision in planned.items():
                needs = f" <- {', '.join(read.needs[name])}" if read.needs[name] else ""
                say(f"{name:{width}} {f'runs: {decision.why}' if decision.runs else 'is done'}{needs}")
            return 0
        with _locked(read):
            code = driver.drive()
    if code == 0:
        say(f"{read.folder}: {driver.num_run} of {len(planned)} steps were run; all are done")
    return code


@contextlib.contextmanager
def _locked(pipeline: Pipeline) -> Iterator[None]:
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
        raise UserError(
            f"PIPELINE: {pipeline.folder} is driven by another process; stop that, or give another name=..."
        ) from error
    try:
        yield
    finally:
        lock.release()
