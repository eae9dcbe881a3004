"""One rank of a training run, or all of it where nobody started more."""

import argparse
import faulthandler
import logging
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from pathlib import Path

import torch

from configs import RunConfig, UserError, load_run
from trainer.distributed import World, read_environment
from trainer.process import tune_process
from trainer.supervision.run_folder import make_shared, write_status
from trainer.supervision.signals import StopRequest, end_with_parent, stop_request

EXIT_FINISHED, EXIT_FAILED, EXIT_REFUSED, EXIT_STOPPED = 0, 1, 2, 75

log = logging.getLogger(__name__)


def main(argv: Sequence[str]) -> int:
    """`python -m trainer CONFIG [section.key=value ...]`; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m trainer", description="One rank of a training run.")
    parser.add_argument("config", help="a YAML file, or the name of a shipped run")
    parser.add_argument("overrides", nargs="*", metavar="section.key=value")
    arguments = parser.parse_args(argv)
    try:
        return run(arguments.config, arguments.overrides)
    except UserError as error:
        for line in str(error).splitlines():
            print(f"zeromt: error: {line}", file=sys.stderr)
        return EXIT_REFUSED


def run(config_name: str, overrides: Sequence[str]) -> int:
    """Train as this rank of as many as the environment says.

    Returns:
        0 finished, 75 stopped on request after a complete save, 1 failed.

    Raises:
        UserError: the user's input is wrong; `status.json` says so too where there is a folder to say it in.
    """
    stop = stop_request()
    end_with_parent()
    faulthandler.enable()
    config = load_run(config_name, overrides)
    rank, _, _ = read_environment(os.environ)
    _configure_logging(rank)
    folder = Path(config.folder)
    try:
        return _train(config, folder, stop)
    except UserError as error:
        if rank == 0:
            write_status(folder, "refused", exit_code=EXIT_REFUSED, error=str(error))
        raise
    except Exception as error:
        # No more collectives after an error: the others may not be there to answer.
        traceback.print_exc()
        write_status(folder, "failed", exit_code=EXIT_FAILED, error=f"rank {rank}: {type(error).__name__}: {error}")
        return EXIT_FAILED


def _train(config: RunConfig, folder: Path, stop: StopRequest) -> int:
    tune_process()
    # DeepSpeed takes seconds to import: errors of the configuration need not wait for it.
    from trainer.build import build

    if config.training.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
    world = World(timeout_minutes=config.engine.communication_timeout_minutes)
    make_shared(folder, world)
    if world.is_main:
        write_status(folder, "running", exit_code=EXIT_FAILED)
    built = build(config, world, stop_requested=stop)
    outcome = built.trainer.fit()
    built.close()
    code = EXIT_STOPPED if outcome == "stopped" else EXIT_FINISHED
    log.info("%s: %s", outcome, folder)
    if world.is_main:
        write_status(folder, outcome, exit_code=code)
    world.close()
    return code


def _configure_logging(rank: int) -> None:
    """This project's lines from rank 0, warnings from the others; of libraries, errors only."""
    logging.basicConfig(format="%(message)s", level=logging.WARNING, stream=sys.stdout)
    logging.getLogger("trainer").setLevel(logging.INFO if rank == 0 else logging.WARNING)
    warnings.filterwarnings("ignore", category=FutureWarning, module="torch")
    warnings.filterwarnings("ignore", category=UserWarning, module="torch")
