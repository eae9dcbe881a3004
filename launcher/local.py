"""`zeromt launch local`: torchrun on this machine, with the ranks' real outcome as exit code."""

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

from configs import load_run
from configs.plugins import keep_copies, pins_of, variables
from configs.process.environment import check_machine
from configs.process.gpus import gpus_to_use
from configs.process.signals import STOPPED
from configs.process.streams import note
from configs.zero_keys import check_ranks
from launcher.agents.attempts import run_job
from launcher.agents.datasets import check_datasets
from launcher.agents.job import Job, choose_processes, describe_idle, shutdown_seconds
from launcher.agents.run_folder import Place
from launcher.machine.cores import choose_binding, num_cores
from launcher.machine.supervise import Supervisor
from launcher.options.command import InParts


def launch(
    supervisor: Supervisor,
    *,
    config: str,
    nproc: int | None,
    max_restarts: int,
    overrides: Sequence[str],
    fresh: bool = False,
    reset: str | None = None,
    parent: str | None = None,
    plugins: Sequence[str] = (),
    array: InParts | None = None,
) -> int:
    """Train on this machine, or run the parts of an array and their merge.

    Args:
        supervisor: runs the ranks; its signal handlers are in place.
        config: a YAML file, or the name of an example run.
        nproc: processes; None: one per GPU, or per core without a GPU, up to stream.micro_batches.
        max_restarts: restarts after failures; every new checkpoint resets the count.
        overrides: `section.key=value` settings.
        fresh: start at step 0, and rename an existing run.
        reset: data, optimizer or data,optimizer: what to reset, keeping the weights of the newest checkpoint.
        parent: RUN[@step] with the initial weights of a run without a checkpoint.
        plugins: files with components, in addition to those that the configuration names.
        array: a command to run in parts, `nproc` or one at a time, all of which read the plugins that were read here;
            None for training.

    Returns:
        0 finished; 2 refused by the ranks; 75 stopped on request after a complete save; 1 anything else. Of an array:
        see `run_array`.

    Raises:
        UserError: the configuration or the number of processes is wrong, the dataset is not prepared, or another job
            writes the run.
    """
    if array is not None:
        place = Place.of(array, config, overrides, plugins)
        keep_copies(Path(place.folder), place.plugins)
        pins = pins_of(place.plugins, Path(place.folder))
        return run_array(supervisor, array, {**os.environ, **variables(config, pins)}, at_a_time=nproc or 1)
    run = load_run(config, overrides, plugins=plugins)
    check_machine(os.environ)
    check_datasets(run, config, overrides, plugins, parent=parent)
    cores, gpus = num_cores(), gpus_to_use(run.engine.device, os.environ)
    binding = choose_binding(run.engine.numa_binding, gpus=gpus)
    job = Job(
        config=config,
        overrides=tuple(overrides),
        num_processes=choose_processes(nproc, run.stream.micro_batches, gpus=gpus, cores=cores),
        folder=Path(run.folder),
        shutdown_seconds=shutdown_seconds(run),
        save_seconds=60 * run.supervision.save_minutes,
        on_cpu=run.engine.device == "cpu",
        numa_binding=binding.mode,
        reset=reset,
        parent=parent,
        plugins=tuple(run.plugins),
    )
    check_ranks(run.engine.zero_optimization, ranks=job.num_processes, on_each=job.num_processes)
    others = f"; logs of the others than rank 0: {job.logs}" if job.num_processes > 1 else ""
    idle = describe_idle(gpus, job.num_processes, run.stream.micro_batches)
    begin = f"{job.num_processes} process{'es' * (job.num_processes > 1)} on this machine{idle}{binding.said}{others}"
    return run_job(job, supervisor, cores=cores, max_restarts=max_restarts, fresh=fresh, begin=begin)


def run_array(supervisor: Supervisor, array: InParts, environment: Mapping[str, str], *, at_a_time: int) -> int:
    """Run a command in parts.

    Args:
        supervisor: runs the parts; its signal handlers are in place.
        array: the command, and how many parts.
        environment: of the parts.
        at_a_time: parts that run side by side.

    Returns:
        0; 75 stopped on request; or the exit code of the first part, or of the merge, that failed, 1 if a signal killed
        it. Then no other is begun, and those that run come to their end.
    """
    codes: list[int] = []

    def run(part: str | None) -> None:
        if any(codes):
            return
        share = ["--merge"] if part is None else ["--part", part]
        command = [sys.executable, "-P", "-m", "zeromt", array.words[0], *share, *array.words[1:]]
        code = supervisor.run(command, environment)
        if code and supervisor.was_stopped:
            code = STOPPED
        elif code:
            how = f"ended with exit code {code}" if code > 0 else f"was killed by {signal.Signals(-code).name}"
            note(f"{array.words[0]} --{'merge' if part is None else f'part {part}'} {how}")
        codes.append(max(code, 1) if code else 0)

    with ThreadPoolExecutor(at_a_time) as pool:
        parts = [pool.submit(run, f"{number + 1}/{array.number}") for number in range(array.number)]
        while wait(parts, timeout=0.2).not_done:
            pass  # in turns: Python handles a signal that came just before an endless wait only when that ends
        for part in parts:
            part.result()
    run(None)
    return next(filter(None, codes), 0)
