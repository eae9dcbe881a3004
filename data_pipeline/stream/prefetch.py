"""Reading ahead in a thread."""

import queue
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Prefetch(Generic[T]):
    """Takes from an endless iterator in a thread of its own, at most `limit` items ahead.

    With a limit of 0 there is no thread. An error of the iterator is raised where its item would have come,
    and again at every later call.
    """

    def __init__(self, items: Iterator[T], limit: int) -> None:
        self._items = items
        self._limit = limit
        self._ready: deque[T] = deque()
        self._error: BaseException | None = None
        self._is_closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._fill, name="prefetch", daemon=True) if limit else None
        if self._thread is not None:
            self._thread.start()

    def next(self) -> T:
        """The next item.

        Raises:
            BaseException: what the iterator raised.
        """
        if self._thread is None:
            self._take()
        with self._changed:
            while not self._ready and self._error is None:
                if self._is_closed:
                    raise RuntimeError("the stream was closed")
                self._changed.wait()
            if not self._ready:
                assert self._error is not None
                raise self._error
            self._changed.notify_all()
            return self._ready.popleft()

    def close(self) -> None:
        """End the thread, which finishes the item that it is at, and the iterator where it is a generator."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
        if isinstance(self._items, Generator):
            self._items.close()

    def _fill(self) -> None:
        while True:
            with self._changed:
                while len(self._ready) >= self._limit and not self._is_closed:
                    self._changed.wait()
                if self._is_closed or self._error is not None:
                    return
            self._take()

    def _take(self) -> None:
        """Move one item, or the error in its place."""
        if self._error is not None:
            return
        try:
            item = next(self._items)
        except BaseException as error:  # handed to the thread that asks
            with self._changed:
                self._error = error
                self._changed.notify_all()
            return
        with self._changed:
            self._ready.append(item)
            self._changed.notify_all()


class Background:
    """Threads, one unless said, that do jobs in the order in which they were begun.

    They are daemons: a process that ends by an error does not wait for jobs that nobody asks for any more, as it would
    with `concurrent.futures`.
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
