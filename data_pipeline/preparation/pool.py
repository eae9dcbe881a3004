"""Runs tasks in several processes, with results in the order of the tasks.

The children import what their job's module imports, so those modules must be light.
"""

import itertools
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from configs.plugins import dumps, loads

Task = TypeVar("Task")
Result = TypeVar("Result")
Work = Callable[[Any], Any]


def run_tasks(
    open_: Callable[[], Callable[[Task], Result]], tasks: Iterable[Task], workers: int, *, apart: bool = False
) -> Iterator[Result]:
    """Do tasks, with a bounded number in flight.

    Args:
        open_: called once in each process, to which it is sent; gives what does a task.
        tasks: to do.
        workers: processes; a single one is this one.
        apart: whether even a single one is a new process, whose memory is freed when it ends.

    Raises:
        Exception: the error of the first failing task.
        RuntimeError: a process died, possibly for lack of memory.
    """
    if workers == 1 and not apart:
        work = open_()
        for task in tasks:
            yield work(task)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, context, _start_child, (dumps(open_),)) as pool:
        tasks = iter(tasks)
        try:
            waiting: deque[Future[Result]] = deque(
                pool.submit(_work_in_child, t) for t in itertools.islice(tasks, 2 * workers)
            )
            while waiting:
                done = waiting.popleft().result()
                waiting.extend(pool.submit(_work_in_child, t) for t in itertools.islice(tasks, 1))
                yield done
        except BrokenProcessPool as error:
            raise RuntimeError("a process of the preparation was killed; out of memory perhaps") from error
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


# A pool process keeps its job here, as initializers cannot pass it on otherwise.
_work: Work | None = None


def _start_child(open_: bytes) -> None:
    global _work
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent kills its children
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _work = loads(open_)()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)


def _work_in_child(task: Any) -> Any:
    assert _work is not None
    return _work(task)
