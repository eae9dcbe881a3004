"""Translation in several processes, each with its own models: one per GPU, or several on a CPU.

Every process gets every task and does its part of the batches, so that batches and translations are the same for any
number of processes.
"""

import contextlib
import itertools
import os
import signal
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path

import torch

from configs import UserError
from configs.plugins import dumps, loads
from configs.process.signals import PR_SET_PDEATHSIG, prctl
from configs.process.streams import filter_terminals
from trainer.inference.translation.translator import OnLines, do_nothing
from trainer.ranks.process import tune_process
from zeromt.translator.worker import Answer, Options, Task, Worker

AHEAD = 2
"""Tasks in flight before the first answer is waited for."""

_worker: Worker
"""Of this process, if it is one of a pool's."""


class Pool:
    """Processes that translate together; `close` ends them at once.

    Args:
        folders, options: see `Worker`.
        devices: the GPU that each process sees; None for a CPU.
    """

    def __init__(self, folders: Sequence[Path], options: Options, devices: Sequence[str | None]) -> None:
        spawn, number = get_context("spawn"), len(devices)
        threads = max(1, len(os.sched_getaffinity(0)) // number)
        self._executors = [
            ProcessPoolExecutor(1, spawn, initializer=_begin, initargs=(device, threads)) for device in devices
        ]
        self._processes: list[int] = []
        try:
            with _none_is_killed():
                started = [executor.submit(os.getpid) for executor in self._executors]
                self._processes = [future.result() for future in started]
                given = dumps((folders, options))
                loading = [executor.submit(_load, given, rank, number) for rank, executor in enumerate(self._executors)]
                for future in loading:
                    future.result()
        except BaseException:
            self.close()
            raise

    def answers(self, tasks: Iterable[Task | None], on_lines: OnLines = do_nothing) -> Iterator[Answer]:
        """The answers to the tasks, in order; a None among the tasks asks for all answers before it.

        Args:
            tasks: taken a few ahead.
            on_lines: called with the number of lines of each task.

        Raises:
            UserError: a line or a setting is wrong.
            RuntimeError: a process was killed.
        """
        waiting: deque[list[Future[Answer]]] = deque()
        with _none_is_killed():
            for task in itertools.chain(tasks, [None]):
                if task is not None:
                    waiting.append([executor.submit(_do, task) for executor in self._executors])
                while len(waiting) > (0 if task is None else AHEAD):
                    answers = [future.result() for future in waiting.popleft()]
                    columns = zip(*(answer.lines for answer in answers), strict=True)
                    lines = [next((line for line in column if line is not None), None) for column in columns]
                    on_lines(len(lines))
                    yield answers[0]._replace(lines=lines)

    def close(self) -> None:
        """Kill the processes, whatever they are doing."""
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        for executor in self._executors:
            executor.shutdown(cancel_futures=True)


@contextlib.contextmanager
def _none_is_killed() -> Iterator[None]:
    try:
        yield
    except BrokenProcessPool as error:
        raise RuntimeError(
            "a translation process was killed, perhaps for lack of memory; give fewer --processes"
        ) from error


def _begin(device: str | None, threads: int) -> None:
    """The first thing that a pool's process does. Ctrl-C is the parent's to act on, and its end the process's."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.dup2(2, 1)  # only translations go to standard output
    filter_terminals()
    if device is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = device
    if not os.environ.get("OMP_NUM_THREADS"):
        torch.set_num_threads(threads)


def _load(given: bytes, rank: int, world_size: int) -> None:
    global _worker
    tune_process()
    with _plain_errors():
        _worker = Worker(*loads(given), rank=rank, world_size=world_size)


def _do(task: Task) -> Answer:
    with _plain_errors():
        return _worker.do(task)


@contextlib.contextmanager
def _plain_errors() -> Iterator[None]:
    """Errors for the user as the class that can be sent to another process."""
    try:
        yield
    except UserError as error:
        raise UserError(str(error)) from None
