"""`zeromt launch local`: torchrun on this machine, with the ranks' real outcome as exit code."""

import os
from collections.abc import Sequence
from pathlib import Path

from configs import load_run
from configs.plugins import pins_of, variables
from configs.process.environment import check_machine
from configs.process.gpus import gpus_to_use
from configs.zero_keys import check_ranks
from launcher.agents.attempts import run_job
from launcher.agents.datasets import check_datasets
from launcher.agents.job import Job, choose_processes, describe_idle, shutdown_seconds
from launcher.clusters.local.array import run_array
from launcher.machine.hardware import num_cores
from launcher.machine.numa import choose_binding
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
    run = load_run(config, overrides, plugins=plugins)
    if array is not None:
        pins = pins_of(run.plugins, Path(run.folder), with_content=True)
        return run_array(supervisor, array, {**os.environ, **variables(config, pins)}, at_a_time=nproc or 1)
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
