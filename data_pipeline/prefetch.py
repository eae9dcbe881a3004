"""Reading ahead in a thread."""

import threading
from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

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
        """End the thread. It finishes the item that it is at."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

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
