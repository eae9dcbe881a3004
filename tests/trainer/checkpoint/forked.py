"""Ranks as forked processes, and an engine of a few tensors: thousands of saves in seconds."""

import os
import resource
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import torch

from configs import CheckpointSection
from trainer.checkpoint.manager import CheckpointManager, RunIdentity
from trainer.engines.protocol import Engine, ParameterState
from trainer.ranks.distributed import World

KILLED = -signal.SIGKILL

IDENTITY = RunIdentity(
    config_yaml="name: forked\n",
    tokenizer_files={"tokenizer.model": b"pieces"},
    manifest={"zero_stage": 0, "precision": "fp32", "fingerprints": {"data": ["d" * 64], "tokenizer": "t" * 64}},
)


class SmallEngine:
    """What a save asks of an engine; its tensors are a function of the step."""

    device = torch.device("cpu")
    shapes = ((7, 5), (64, 32), (), (0, 3))
    moments = ("exp_avg", "exp_avg_sq")

    def __init__(self, step: int, *, has_moments: bool = True, keeps_ema: bool = False, scale: int = 1) -> None:
        draw = torch.Generator().manual_seed(step)
        self.has_moments = has_moments
        self.keeps_ema = keeps_ema
        self.tensors = {
            f"layer.{n}": torch.randn(4, *(d * scale for d in shape), generator=draw)
            for n, shape in enumerate(self.shapes)
        }

    def parameter_sizes(self) -> dict[str, int]:
        return {name: t[0].numel() for name, t in self.tensors.items()}

    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: tuple(t[0].shape) for name, t in self.tensors.items()}

    def parameter_states(self) -> Iterator[ParameterState]:
        for name, (weight, *moments, ema) in self.tensors.items():
            both = dict(zip(self.moments, moments, strict=True)) if self.has_moments else None
            yield ParameterState(name=name, weight=weight, moments=both, ema=ema if self.keeps_ema else None)


def engine(step: int, *, has_moments: bool = True, keeps_ema: bool = False, scale: int = 1) -> Engine:
    """A small engine, with all of the protocol that a save uses."""
    return cast(Engine, SmallEngine(step, has_moments=has_moments, keeps_ema=keeps_ema, scale=scale))


def manager(folder: Path, world: World, **section: Any) -> CheckpointManager:
    """One of a run's `checkpoints/` folder."""
    return CheckpointManager(folder, CheckpointSection(**{"keep_last": 2, "keep_best": 0, **section}), world, IDENTITY)


def fork_ranks(size: int, task: Callable[[World], object], *, seconds: float = 60) -> list[int]:
    """Call `task` in `size` new ranks; exit codes, negative for a signal.

    A task that raises, or returns False, ends its rank with 1; what it wrote stands on this process's stderr.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    pids = [_fork(_Rank(rank, size, port, task)) for rank in range(size)]
    return _wait(pids, seconds)


def fork(task: Callable[[], object], *, seconds: float = 60) -> int:
    """Call `task` in a new process; its exit code, as `fork_ranks` has it."""
    return _wait([_fork(task)], seconds)[0]


class _Rank:
    """A task of one rank."""

    def __init__(self, rank: int, size: int, port: int, task: Callable[[World], object]) -> None:
        self._environment = {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": rank, "MASTER_PORT": port}
        self._task = task

    def __call__(self) -> object:
        os.environ.update({name: str(value) for name, value in self._environment.items()}, MASTER_ADDR="127.0.0.1")
        world = World(timeout_minutes=0.5)
        answer = self._task(world)
        world.close()
        return answer


def _fork(task: Callable[[], object]) -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        code = int(task() is False)
    except BaseException:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))  # tests lower it
        traceback.print_exc()
    finally:  # whatever happens, no child goes on as a second pytest
        with suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _wait(pids: Sequence[int], seconds: float) -> list[int]:
    end, codes = time.monotonic() + seconds, dict.fromkeys(pids, 0)
    waiting = set(pids)
    while waiting:
        for pid in list(waiting):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                codes[pid] = os.waitstatus_to_exitcode(status)
                waiting.discard(pid)
        if waiting and time.monotonic() > end:
            for pid in waiting:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            raise AssertionError(f"{len(waiting)} of {len(pids)} processes were not done within {seconds} s")
        time.sleep(0.002)
    return [codes[pid] for pid in pids]


def leftovers(folder: Path) -> list[str]:
    """Temporary names in a folder of checkpoints."""
    return sorted(p.name for p in folder.iterdir() if p.name.startswith("tmp"))


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a checkpoint."""
    return {p.name: p.read_bytes() for p in sorted(folder.iterdir())}
