"""`zeromt launch local`: a run on this machine, started again when it fails."""

import shlex
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

from configs.process.files.inside import is_listed
from configs.process.streams import note
from launcher.machine.supervise import RankSupervisor
from launcher.start.attempt import attempt, holding_run
from launcher.start.ranks import Job, make_job, torchrun_command
from launcher.start.run_folder import check_in_child, remove_refused
from trainer.runs.layout import STOP_FILE, newest_step


def launch(
    *,
    config: str,
    overrides: Sequence[str],
    plugins: Sequence[str],
    nproc: int | None,
    max_restarts: int,
    fresh: bool,
    reset: str | None,
    parent: str | None,
    dry_run: bool,
) -> int:
    """Train on this machine.

    Args:
        config: a YAML file, or the name of a shipped run.
        overrides: settings that replace its own.
        plugins: files with components, in addition to those that the configuration names.
        nproc: number of processes; None takes one for each GPU, else for each core, up to stream.micro_batches.
        max_restarts: restarts after failures without a new checkpoint.
        fresh: start at step 0, and rename an existing run.
        reset: data, optimizer or data,optimizer: what to reset, keeping the weights of the newest checkpoint.
        parent: RUN[@step] with the initial weights of a run without a checkpoint.
        dry_run: check what DeepSpeed takes, and print torchrun's command line, but start nothing.

    Returns:
        0 finished; 2 refused by the ranks; 75 stopped on request after a complete save; 1 anything else.

    Raises:
        UserError: an argument is wrong, or another job writes the run.
    """
    with RankSupervisor() as supervisor:
        job = make_job(
            config=config, overrides=overrides, plugins=plugins, nproc=nproc, fresh=fresh, reset=reset, parent=parent
        )
        others = f"; logs of the other ranks: {job.logs}" if job.num_processes > 1 else ""
        begin = f"{job.num_processes} process{'es' * (job.num_processes > 1)} on this machine{job.idle}{others}"
        if dry_run:
            if code := check_in_child(config, overrides, plugins):
                return code
            print(shlex.join(torchrun_command(job, "ID", Path("FOLDER"), reset=reset)))
            note(begin)
            return 0
        is_new = not job.folder.exists()
        with holding_run(job):
            note(begin)
            code = _attempts(job, supervisor, max_restarts)
        if is_new:
            remove_refused(job.folder)
        supervisor.settle()
    return code


def _attempts(job: Job, supervisor: RankSupervisor, max_restarts: int) -> int:
    """Start the ranks, and again when they fail, at most so often without a new checkpoint."""
    first = step = newest_step(job.folder)
    failures = 0
    while True:
        launch_id = f"{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:8]}"
        reset = job.reset if step == first else None
        code = attempt(job, supervisor, launch_id, reset=reset)
        if code != 1 or supervisor.was_stopped:
            return code
        if is_listed(job.folder / STOP_FILE):
            note(f"the ranks failed, and {job.folder / STOP_FILE} asks to stop: they are not started again")
            (job.folder / STOP_FILE).unlink(missing_ok=True)
            return code
        before, step = step, newest_step(job.folder)
        failures = 1 if step > before else failures + 1
        if failures > max_restarts:
            note(f"{_what_is_left(step)}; logs: {job.logs}")
            if max_restarts:
                note(f"no new checkpoint since step {step}: the ranks failed {failures} times; given up")
            return code
        note(f"the ranks failed; restart {failures} of {max_restarts} since step {step}, from the newest checkpoint")


def _what_is_left(step: int) -> str:
    """What is saved after a failure and what to do; `step` is that of the newest checkpoint."""
    if not step:
        return "nothing was saved yet: once the cause is fixed, the same command begins again"
    return f"step {step} is saved: once the cause is fixed, the same command resumes it (without --fresh or --reset)"
