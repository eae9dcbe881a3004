"""Reading ahead: items of an iterator that is in this process or in one of its own."""

import contextlib
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Generic, TypeVar

from configs import UserError
from configs.plugins import dumps, loads
from configs.process.streams import filter_terminals
from data_pipeline.prepared.index import DataError

T = TypeVar("T")

WATCH_SECONDS = 0.5
"""Between a loader process's looks at whether its parent still lives."""
START = "from data_pipeline.stream.prefetch import serve; serve()"
# Schedulers and terminals send these to every process of a job. The parent decides what becomes of its child, which
# it needs until its last update is saved.
PARENTS_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


class Background:
    """Threads, one unless said, that do jobs in the order in which they were begun.

    They are daemons: a process that ends by an error does not wait for jobs whose results are no longer needed, as it
    would with `concurrent.futures`.
    """

    def __init__(self, num_threads: int = 1) -> None:
        self._jobs: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._is_closed = False
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=self._work, name="background", daemon=True) for _ in range(num_threads)
        ]
        for thread in self._threads:
            thread.start()

    def begin(self, job: Callable[[], T]) -> Callable[[], T]:
        """Queue a job.

        Returns:
            What waits for the job, gives its result and raises its error; `CancelledError` after `close`.
        """
        future: Future[T] = Future()
        with self._lock:
            if self._is_closed:
                future.cancel()
            else:
                self._jobs.put((future, job))
        return future.result

    def close(self) -> None:
        """Finish the jobs that are being done, leave the others out, and end the threads."""
        with self._lock:
            self._is_closed = True
            for _ in self._threads:
                self._jobs.put(None)
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while (entry := self._jobs.get()) is not None:
            future, job = entry
            if self._is_closed:
                future.cancel()
                continue
            try:
                future.set_result(job())
            except BaseException as error:  # handed to the thread that asks
                future.set_exception(error)
            del entry, future, job  # what it gave is the asker's alone, so that a window is let go of in time


class Prefetch(Generic[T]):
    """Takes from an endless iterator in a thread of its own, at most `limit` items ahead.

    With a limit of 0 there is no thread. An error of the iterator is raised where its item would have come, and again
    at every later call.
    """

    def __init__(self, items: Iterator[T], limit: int) -> None:
        self._items = items
        self._background = Background() if limit else None
        self._coming = deque(self._begin() for _ in range(limit))

    def next(self) -> T:
        """The next item.

        Raises:
            BaseException: what the iterator raised.
        """
        if not self._coming:
            return next(self._items)
        item = self._coming[0]()
        self._coming.popleft()
        self._coming.append(self._begin())
        return item

    def close(self) -> None:
        """End the thread and the iterator: a generator when it has made its item, a process at once."""
        if isinstance(self._items, LoaderProcess):
            self._items.close()
        if self._background is not None:
            self._background.close()
        if isinstance(self._items, Generator):
            self._items.close()

    def _begin(self) -> Callable[[], T]:
        assert self._background is not None
        return self._background.begin(partial(next, self._items))


class LoaderProcess(Iterator[T]):
    """An endless iterator in a process of its own, beyond the GIL, which makes one item ahead of the pipe.

    The process is started afresh by `subprocess`, not by `multiprocessing`: a forked one would inherit the threads of
    gloo and CUDA half dead, and a spawned one would import the parent's main module, and torch with it. It opens the
    file systems and datasets itself.
    """

    def __init__(self, make: Callable[[], Iterator[T]]) -> None:
        """Start the process.

        Args:
            make: makes the iterator, there. Picklable, and not of the main module, which the process does not have.
        """
        work = dumps(make)
        self._pipe, theirs = Pipe()
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path),
            "PYTHONSAFEPATH": "1",  # a file of the current folder is no module, unless it is one here
            "OPENBLAS_NUM_THREADS": "1",  # numpy would start one for each core
        }
        command = [sys.executable, "-c", START, str(os.getpid()), str(theirs.fileno())]
        before = signal.pthread_sigmask(signal.SIG_BLOCK, PARENTS_SIGNALS)  # inherited, until `serve` ignores them
        try:
            self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=environment)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            theirs.close()
        with contextlib.suppress(OSError):  # it has ended, which `next` says
            self._pipe.send_bytes(work)

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    def __next__(self) -> T:
        """The next item; its arrays belong to the caller.

        Raises:
            UserError: the iterator raised it, or a subclass.
            RuntimeError: the iterator raised something else (its traceback is in the message), or the process was
                ended.
        """
        try:
            content = self._pipe.recv_bytes()
        except (EOFError, OSError):
            raise RuntimeError(_how_it_ended(self._process)) from None
        is_error, item = pickle.loads(content)
        if is_error:
            raise item
        result: T = item
        return result

    def close(self) -> None:
        """End the process at once, whatever it is doing: it holds nothing that would want to be put in order."""
        self._process.kill()
        self._process.wait()


def serve() -> None:
    """The other process, from start to end."""
    filter_terminals()
    for ignored in PARENTS_SIGNALS:
        signal.signal(ignored, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PARENTS_SIGNALS)
    parent, pipe = map(int, sys.argv[1:])
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    outlet: Connection[Any, Any] = Connection(pipe)
    try:
        for item in loads(outlet.recv_bytes())():
            outlet.send_bytes(pickle.dumps((False, item), protocol=5))
    except BaseException as error:  # the parent raises it
        with contextlib.suppress(OSError):
            outlet.send_bytes(pickle.dumps((True, _portable(error))))
    sys.stdout.flush()
    os._exit(0)  # waits for no thread of the iterator's


def _portable(error: BaseException) -> BaseException:
    """The error, in a form that arrives as what it is."""
    if isinstance(error, UserError):
        return (DataError if isinstance(error, DataError) else UserError)(str(error))
    return RuntimeError("in a loader process:\n" + "".join(traceback.format_exception(error)).rstrip())


def _end_with(parent: int) -> None:
    """End this process when the other one is gone."""
    while os.getppid() == parent:
        time.sleep(WATCH_SECONDS)
    os._exit(1)


def _how_it_ended(process: "subprocess.Popen[bytes]") -> str:
    code = process.wait()
    how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
    hint = ", as the kernel does when memory runs out" if code == -signal.SIGKILL else ""
    return f"loader process {process.pid} was ended {how}{hint}; stream.workers=0 reads without such processes"
