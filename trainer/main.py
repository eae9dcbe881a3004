"""One rank of a training run, or the whole run if no launcher started more."""

import argparse
import contextlib
import dataclasses
import faulthandler
import gc
import logging
import os
import socket
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import torch

from configs import RunConfig, UserError, load_run
from configs.plugins import keep_copies
from configs.process.environment import restored_environment
from configs.process.files import as_file_error, explain
from configs.process.signals import StopRequest, end_with_parent, ending_at_stop, stop_request
from configs.process.streams import leave_standard_streams, tell
from configs.process.with_torch import leave, quick_imports
from trainer.checkpoint.state import TrainerState
from trainer.limits import NothingToDo
from trainer.ranks.activities import Activities
from trainer.ranks.checks import check_agreement, make_shared
from trainer.ranks.device import device_name, settle_device
from trainer.ranks.distributed import World, check_rank, read_environment
from trainer.ranks.process import compute_deterministically, tune_process
from trainer.records.metrics import close_open, describe_error
from trainer.runs.failure import message_of, note_failure, says_all
from trainer.runs.layout import LEDGER_FILE, REPORT, STATUS_FILE, STOP_FILE
from trainer.runs.ledger import Ledger
from trainer.runs.parents import check_beginning
from trainer.runs.run_lock import RunLock, RunLockedError
from trainer.runs.status import LAUNCH_ID, read_status, write_status
from trainer.terminal import bar_shown, configure_logging, show_summary

RESETS = frozenset({"data", "optimizer"})
EXIT_FINISHED, EXIT_FAILED, EXIT_REFUSED, EXIT_STOPPED = 0, 1, 2, 75
_REFUSAL_SECONDS = 3.0
"""Seconds within which all ranks have refused, if they refuse alike."""

log = logging.getLogger(__name__)


class _RefusedByAllError(UserError):
    """All ranks have refused together."""


def main(argv: Sequence[str]) -> int:
    """`python -m trainer CONFIG [--check | --reset WHAT | --from RUN] [--plugins FILE] [key=value ...]`.

    A launcher reads how a run ended from status.json. Its ranks end with 0 if they have agreed on the end, since
    torchrun and srun end the other ranks at once when one has ended with another code.
    """
    parser = argparse.ArgumentParser(prog="python -m trainer", description="One rank of a training run.")
    parser.add_argument("config", help="a YAML file, or the name of a shipped run")
    parser.add_argument("--reset", default="", metavar="WHAT", help="data, optimizer or data,optimizer")
    parser.add_argument("--from", dest="parent", metavar="RUN[@step]", help="whose weights a new run begins with")
    parser.add_argument("--plugins", action="append", default=[], metavar="FILE", help="a Python file with components")
    parser.add_argument("--check", action="store_true", help="only ask torch and DeepSpeed about the configuration")
    parser.add_argument("overrides", nargs="*", metavar="section.key=value")
    arguments = parser.parse_intermixed_args(argv)
    try:
        if arguments.check:
            check(load_run(arguments.config, arguments.overrides, plugins=arguments.plugins))
            return EXIT_FINISHED
        reset = frozenset(filter(None, arguments.reset.split(",")))
        if not reset <= RESETS:
            raise UserError(f"--reset: {arguments.reset!r} is unknown; allowed is data, optimizer or data,optimizer")
        plugins, parent = arguments.plugins, arguments.parent
        code = run(arguments.config, arguments.overrides, reset=reset, parent=parent, plugins=plugins)
        return leave(EXIT_FINISHED if code == EXIT_STOPPED and LAUNCH_ID in os.environ else code)
    except UserError as error:
        for line in str(error).splitlines():
            tell(f"zeromt: error: {line}")
        is_agreed = isinstance(error, _RefusedByAllError) and LAUNCH_ID in os.environ
        return leave(EXIT_FINISHED if is_agreed else EXIT_REFUSED)
    finally:
        leave_standard_streams()


def check(config: RunConfig) -> None:
    """Check what only torch and DeepSpeed know of a configuration; nothing is read, computed or written.

    Raises:
        UserError: a key of DeepSpeed, a part of the model or a pattern of what is frozen is wrong.
    """
    with quick_imports():
        from model.trained import trained
        from model.transformer import SpecialIds, build_transformer
        from trainer.engines.deepspeed.config import check_keys

    check_keys(config.engine, clip_norm=config.optimizer.clip_norm, ranks=1, on_each=1)
    size = config.prepare.tokenizer.vocab_size
    with torch.device("meta"):
        model = build_transformer(
            config.model,
            source_vocab_size=size,
            target_vocab_size=size,
            special=SpecialIds(pad=0, bos=1, eos=2),
            seed=config.seed,
        )
    trained(config, dict(model.named_parameters()))


@restored_environment()
def run(
    config_name: str,
    overrides: Sequence[str],
    *,
    reset: frozenset[str] = frozenset(),
    parent: str | None = None,
    plugins: Sequence[str] = (),
) -> int:
    """Train as one rank of those that the environment describes.

    Args:
        config_name: a YAML file, or the name of a shipped run.
        overrides: `section.key=value` settings.
        reset: which of `data` and `optimizer` to start afresh with the weights of the newest checkpoint.
        parent: RUN[@step] with the initial weights of a run without a checkpoint.
        plugins: files with components, in addition to those that the configuration names.

    Returns:
        0 finished, 75 stopped on request after a complete save, 1 failed.

    Raises:
        UserError: the user's input is wrong; if the run's folder exists, `status.json` says so too.
    """
    stop, started = stop_request(), time.time()
    end_with_parent()
    faulthandler.enable()
    config = load_run(config_name, overrides, plugins=plugins)
    check_rank(os.environ)
    rank, _, _ = read_environment(os.environ)
    configure_logging(rank)
    folder, lock = Path(config.folder), RunLock(Path(config.folder))
    with contextlib.closing(Activities(config, rank=rank)) as activities, _noted(folder, rank, lock, activities):
        with activities("setup"):
            world = _join_ranks(config)
        with _refusing_together(world):
            check_agreement(config, parent, world)
            # launchers on several nodes may have seen different newest checkpoints
            reset = world.from_main(reset, frozenset[str])
            what = ",".join(sorted(reset))
            world.on_main(lambda: check_beginning(folder, parent, fresh=False, reset=what))  # before its folder is made
            make_shared(folder, world)
            world.on_main(lock.acquire)
            world.on_main(lambda: keep_copies(folder, config.plugins))
            if world.is_main:
                before = read_status(folder / STATUS_FILE)
                activities.ledger = Ledger(
                    folder / LEDGER_FILE,
                    started=started,
                    was_over=before is not None and before.is_over,
                    ranks=world.size,
                    device=device_name(world.device),
                )
                stop.watch_file(folder / STOP_FILE)
            outcome, step, reason, state = _fit(config, world, stop, activities, reset, parent)
            if world.is_main:
                if state is not None:
                    show_summary(config, state, step, is_finished=outcome == "finished")
                stop.consume()
                try:
                    write_status(folder, outcome, step=step, stop_reason=reason)
                except OSError as error:  # a full disk: what was saved is whole
                    log.warning("%s is as before: %s", folder / STATUS_FILE, explain(error))
            with activities("shutdown"):
                world.barrier()  # by now the last manifest has its name, and status.json says how the run ended
                world.close()
            lock.release()
            stop.settle()
            if world.is_main and state is not None:
                _report(folder)
            return EXIT_STOPPED if outcome == "stopped" else EXIT_FINISHED
    return EXIT_FAILED


@contextlib.contextmanager
def _noted(folder: Path, rank: int, lock: RunLock, activities: Activities) -> Iterator[None]:
    """In this block, an error is noted for the launcher, in status.json and in what is open; a refusal is raised again.

    Raises:
        UserError: a refusal.
    """
    end: tuple[str, str | None] = "failed", None
    try:
        yield
    except RunLockedError:  # the run and its status belong to another job
        raise
    except Exception as error:
        of_file = as_file_error(error) if isinstance(error, OSError) else None
        refusal = error if isinstance(error, UserError) else of_file
        end = ("failed", _record_failure(error, folder, rank)) if refusal is None else ("refused", str(refusal))
        if refusal is not None and not isinstance(refusal, _RefusedByAllError):
            note_failure(refusal, folder, rank)  # the launcher shows what rank 0 does not
        with contextlib.suppress(OSError):  # a missing folder may be the error
            write_status(folder, end[0], error=end[1])
        if refusal is not None:
            raise refusal from (None if refusal is error else error)
    finally:
        with activities("shutdown"):
            close_open(*end)
            lock.release()


def _record_failure(error: Exception, folder: Path, rank: int) -> str:
    """Log and note what ended this rank, without collectives: the other ranks may be gone."""
    is_noted = note_failure(error, folder, rank)
    message = f"rank {rank} on {socket.gethostname()}: {message_of(error)}"
    if rank or not is_noted:  # the launcher shows the root cause; rank 0 at the terminal may be only a victim
        if says_all(error):
            tell(f"zeromt: error: {message}")
        else:
            with contextlib.suppress(OSError):
                traceback.print_exception(error)
    return message


def _join_ranks(config: RunConfig) -> World:
    """Prepare this process, and meet the other ranks."""
    settle_device(config.engine.device)
    tune_process()
    if config.training.deterministic:
        compute_deterministically(draws_samples=config.evaluation.search.sampler is not None)
    timeout = config.engine.communication_timeout_minutes
    limits = dataclasses.astuple(config.supervision)
    with ending_at_stop():
        return World(timeout_minutes=timeout, control_minutes=max(timeout, *limits))


@contextlib.contextmanager
def _refusing_together(world: World) -> Iterator[None]:
    """In this block, a refusal that all ranks share is told from one of this rank alone."""
    try:
        yield
    except RunLockedError:
        raise
    except UserError as error:
        if world.meets("refusal", _REFUSAL_SECONDS):
            raise _RefusedByAllError(str(error)) from error
        raise


def _fit(
    config: RunConfig,
    world: World,
    stop: StopRequest,
    activities: Activities,
    reset: frozenset[str],
    parent: str | None,
) -> tuple[Literal["finished", "stopped"], int | None, str | None, TrainerState | None]:
    """Build the run and train; after a rewind, build it again from the newest checkpoint.

    Returns:
        Outcome, last step, what ended it, and the trainer's state, None if nothing was left to do.
    """
    # Importing DeepSpeed takes seconds, so errors in the configuration are found before.
    with quick_imports():
        from trainer.build import build
        from trainer.loop import Trainer
        from trainer.spikes import Rewind

    rewind: Rewind | None = None
    while True:
        trainer: Trainer | None = None
        try:
            with activities("setup"):
                trainer = build(
                    config,
                    world,
                    stop_requested=stop,
                    activities=activities,
                    reset=reset,
                    parent=parent,
                    rewind=rewind,
                )
            if world.is_main:  # not before: a start that is refused, or has nothing to do, leaves what was written
                write_status(Path(config.folder), "running")
            with bar_shown(trainer.view, is_main=world.is_main):
                outcome = trainer.fit()
        except NothingToDo as nothing:
            log.info("%s: %s", config.folder, nothing)
            return "finished", nothing.step, nothing.reason, None
        except Rewind as decision:
            rewind = decision.with_traceback(None)  # which holds the engine
            if trainer is not None:  # else past a checkpoint that cannot be trained on
                if trainer.saver.saved_step != trainer.resumed_step:  # by now there is a checkpoint after the reset
                    reset = frozenset()
                trainer.close("stopped", f"rewind: {rewind.reason}")
                del trainer
            gc.collect()
            continue
        # ranks stop together: all take the reason of the lowest rank that has one
        reason = next(filter(None, world.gather(stop.reason)), None) if outcome == "stopped" else trainer.end
        with activities("shutdown"):
            trainer.close(outcome, reason)
        if activities.ledger is not None:
            activities.ledger.write()
        log.info("%s%s: %s", outcome, f" ({reason})" if reason else "", config.folder)
        return outcome, trainer.saver.saved_step, reason, trainer.run.state


def _report(folder: Path) -> None:
    """Write the run's report; an error here does not fail the run, which is over and saved."""
    try:
        from trainer.report import write

        write(folder)
    except Exception as error:
        log.warning("%s was not written (zeromt report %s makes it): %s", REPORT, folder, describe_error(error))
