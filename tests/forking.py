"""Functions in new processes that are forked from this one: what they return, or how they end."""

import os
import pickle
import resource
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from tests.conftest import descendants
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from trainer.ranks.distributed import World

T = TypeVar("T")

KILLED = -signal.SIGKILL
OTHERS_SECONDS = 30.0
"""Seconds between SIGTERM to the ranks that are left when one has failed, and SIGKILL."""


@dataclass(frozen=True)
class Ended:
    """A process that has ended."""

    code: int
    """Negative for a signal."""
    answer: bytes
    """What its task returned, pickled; nothing where it failed."""


def fork(task: Callable[[], T], *, seconds: float = PATIENCE) -> T:
    """What `task` returns in a new process, which must not fail."""
    return values_of(fork_all([task], seconds=seconds))[0]  # type: ignore[no-any-return]


def fork_ranks(size: int, task: "Callable[[World], T]", *, seconds: float = PATIENCE) -> list[T]:
    """What `task` returns in each of `size` new ranks, none of which may fail."""
    return values_of(fork_all(as_ranks(size, _InWorld(task)), seconds=seconds))


def exit_codes(size: int, task: "Callable[[World], object]", *, seconds: float = PATIENCE) -> list[int]:
    """How `task` ends in each of `size` new ranks: 0, 1 where it raises, or negative for a signal."""
    return [ended.code for ended in fork_all(as_ranks(size, _InWorld(task)), seconds=seconds)]


def values_of(ended: Sequence[Ended]) -> list[Any]:
    codes = [one.code for one in ended]
    assert not any(codes), f"exit codes {codes}; what they wrote stands on stderr"
    return [pickle.loads(one.answer) for one in ended]


class _InWorld:
    """A task that gets the world of its rank."""

    def __init__(self, task: "Callable[[World], object]") -> None:
        self._task = task

    def __call__(self) -> object:
        from trainer.ranks.distributed import World

        world = World(timeout_minutes=10 * PATIENCE / 60)  # who waits for one that is gone is told so at once, or never
        answer = self._task(world)
        world.close()
        return answer


class _Rank:
    """A call with what torchrun sets."""

    def __init__(self, call: Callable[[], object], variables: Mapping[str, str]) -> None:
        self._call = call
        self._variables = variables

    def __call__(self) -> object:
        os.environ |= self._variables
        return self._call()


def as_ranks(size: int, call: Callable[[], object]) -> list[Callable[[], object]]:
    if size == 1:
        return [call]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    world = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    world |= {"WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size)}
    return [_Rank(call, {**world, "RANK": str(rank), "LOCAL_RANK": str(rank)}) for rank in range(size)]


def fork_all(calls: Sequence[Callable[[], object]], *, seconds: float, ends_others: bool = False) -> list[Ended]:
    """Call each in a new process.

    Args:
        calls: of one process each.
        seconds: that they may take together.
        ends_others: whether a process that fails ends the others.

    Raises:
        TimeoutError: they took longer; they are killed, and what they started.
    """
    files = [os.memfd_create("answer") for _ in calls]
    pids = [_fork(call, file) for call, file in zip(calls, files, strict=True)]
    codes = _wait(pids, seconds, ends_others=ends_others)
    answers = []
    for file in files:
        with os.fdopen(file, "rb") as answer:
            answer.seek(0)
            answers.append(answer.read())
    return list(map(Ended, codes, answers))


def _fork(call: Callable[[], object], file: int) -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        answer = pickle.dumps(call())
        _let_files_grow()
        with os.fdopen(file, "wb") as written:
            written.write(answer)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        _let_files_grow()
        traceback.print_exc()
    finally:  # whatever happens, no child goes on as a second pytest
        with suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _let_files_grow() -> None:
    """A task may have limited them, for a disk that is full."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def _wait(pids: Sequence[int], seconds: float, *, ends_others: bool) -> list[int]:
    """Exit codes of children, negative for a signal."""
    codes: dict[int, int] = {}
    left = set(pids)
    end, others_end = time.monotonic() + seconds, float("inf")
    while left:
        for pid in list(left):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                codes[pid] = os.waitstatus_to_exitcode(status)
                left.discard(pid)
        if left and ends_others and others_end == float("inf") and any(codes.values()):
            others_end = time.monotonic() + OTHERS_SECONDS
            for pid in left:
                send(pid, signal.SIGTERM)
        if time.monotonic() > others_end:
            for pid in left:
                send(pid, signal.SIGKILL)
        if left and time.monotonic() > end:
            for pid in left:
                for started in [*descendants(pid), pid]:
                    send(started, signal.SIGKILL)
                os.waitpid(pid, 0)
            raise TimeoutError(f"{len(left)} of {len(pids)} processes were not done within {seconds} s")
        time.sleep(0.002)
    return [codes[pid] for pid in pids]


def send(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
