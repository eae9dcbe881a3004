"""Reading ahead in a process of its own, with hand-over through shared memory.

The process is started afresh by `subprocess`, not by `multiprocessing`: a forked one would inherit the threads of gloo
and CUDA half dead, and a spawned one would import the parent's main module, and torch with it. The memory is a memfd:
having no name, it is gone when both processes are, however they end, and /dev/shm may be small. Linux only.
"""

import contextlib
import itertools
import mmap
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any, Generic, TypeVar

from configs import UserError
from configs.plugins import dumps, loads
from configs.process.terminal import filter_terminals

T = TypeVar("T")

SLOT_BYTES = 64 << 20
"""Address space for the arrays of one item. It becomes memory only as far as items fill it."""
ALIGNMENT = 64
"""Bytes; each array of an item starts at a multiple."""
WATCH_SECONDS = 0.5
"""Between looks at whether the other process still lives, for where no closed pipe tells."""
START = "from data_pipeline.stream.process_prefetch import serve; serve()"
# Schedulers and terminals send these to every process of a job. The parent decides what becomes of its child, which
# it needs until its last update is saved.
PARENTS_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


@dataclass(frozen=True, slots=True)
class _Item:
    content: bytes
    """Pickled, without the bytes of its arrays."""
    sizes: list[int]
    """Bytes of each array."""
    is_in_slot: bool
    """The arrays are in shared memory, else each is the next message."""


class ProcessPrefetch(Generic[T]):
    """Takes from an endless iterator in a process of its own, at most `limit` items ahead: `Prefetch` beyond the GIL.

    An item is pickled (protocol 5). The bytes of its arrays go through one of `limit` slots of shared memory, are
    copied once on arrival and then belong to the caller, writable if they were; an item too large for a slot goes
    through a pipe. An error of the iterator is raised where its item would have come, and again at every later call.
    """

    def __init__(self, make: Callable[[], Iterator[T]], limit: int, slot_bytes: int = SLOT_BYTES) -> None:
        """Start the process.

        Args:
            make: makes the iterator, there. Picklable, and not of the main module, which the process does not have.
            limit: items ahead, at least 1.
            slot_bytes: largest item to go through shared memory.
        """
        assert limit > 0
        self._limit = limit
        self._slot_bytes = slot_bytes
        self._num_taken = 0
        self._error: BaseException | None = None
        self._is_closed = False
        self._lock = threading.Lock()
        with contextlib.ExitStack() as resources:
            self._inlet, outlet = Pipe(duplex=False)
            resources.enter_context(self._inlet)
            self._credits = os.eventfd(limit, os.EFD_CLOEXEC | os.EFD_SEMAPHORE)
            resources.callback(os.close, self._credits)
            with outlet, _memory_file() as work, _memory_file() as shared:
                work.write(dumps(make))
                work.seek(0)
                shared.truncate(limit * slot_bytes)
                self._memory = mmap.mmap(shared.fileno(), limit * slot_bytes)
                resources.callback(self._memory.close)
                self._process = _start(work, (outlet.fileno(), self._credits, shared.fileno()), (limit, slot_bytes))
            resources.callback(_end, self._process)
            # Also at the interpreter's exit, and when nobody holds this any more.
            self._release = weakref.finalize(self, resources.pop_all().close)

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    def next(self) -> T:
        """The next item.

        Raises:
            UserError: the iterator raised it, or a subclass, which it then is; StopIteration alike.
            RuntimeError: the iterator raised something else (its traceback is in the message), the process was
                ended, or `close` was called.
        """
        with self._lock:
            if self._error is None:
                try:
                    message, arrays = self._receive()
                except (EOFError, OSError):
                    message = RuntimeError("the stream was closed" if self._is_closed else _how_it_ended(self._process))
                if isinstance(message, _Item):
                    item: T = pickle.loads(message.content, buffers=arrays)
                    return item
                self._error = message
            raise self._error

    def close(self) -> None:
        """End the process at once, whatever it is doing."""
        self._is_closed = True
        _end(self._process)  # which also ends a `next` in another thread
        with self._lock:
            self._release()

    def _receive(self) -> tuple[_Item | BaseException, list[memoryview]]:
        """The next item and its arrays, or the error in its place.

        Raises:
            EOFError: the process is gone. So it is with an OSError.
        """
        while not self._inlet.poll(WATCH_SECONDS):
            # Where somebody forked this process as the other one was started, that fork keeps the pipe open.
            if self._process.poll() is not None and not self._inlet.poll(0):
                raise EOFError
        message: _Item | BaseException = self._inlet.recv()
        if not isinstance(message, _Item):
            return message, []
        starts = _starts(message.sizes)
        if message.is_in_slot:
            first = self._num_taken % self._limit * self._slot_bytes
            with memoryview(self._memory) as memory, memory[first : first + starts[-1]] as slot:
                content = bytearray(slot)
        else:
            content = bytearray(starts[-1])
            for start, _ in zip(starts, message.sizes, strict=False):
                self._inlet.recv_bytes_into(content, start)
        self._num_taken += 1
        os.eventfd_write(self._credits, 1)
        view = memoryview(content)
        return message, [view[start : start + size] for start, size in zip(starts, message.sizes, strict=False)]


def serve() -> None:
    """The other process, from start to end."""
    filter_terminals()
    for ignored in PARENTS_SIGNALS:
        signal.signal(ignored, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, PARENTS_SIGNALS)
    parent, results, credits, shared, limit, slot_bytes = map(int, sys.argv[1:])
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    outlet: Connection[Any, Any] = Connection(results, readable=False)
    memory = memoryview(mmap.mmap(shared, limit * slot_bytes))
    try:
        items: Iterator[Any] = loads(sys.stdin.buffer.read())()
        for number in itertools.count():
            os.eventfd_read(credits)
            first = number % limit * slot_bytes
            _send(outlet, next(items), memory[first : first + slot_bytes])
    except BaseException as error:  # the parent raises it
        with contextlib.suppress(OSError):
            outlet.send(_portable(error))
    sys.stdout.flush()
    os._exit(0)  # waits for no thread of the iterator's


def _send(outlet: "Connection[Any, Any]", item: object, slot: memoryview) -> None:
    buffers: list[pickle.PickleBuffer] = []
    content = pickle.dumps(item, protocol=5, buffer_callback=buffers.append)
    arrays = [buffer.raw() for buffer in buffers]
    sizes = [array.nbytes for array in arrays]
    starts = _starts(sizes)
    is_in_slot = starts[-1] <= len(slot)
    if is_in_slot:
        for start, array in zip(starts, arrays, strict=False):
            slot[start : start + array.nbytes] = array
    outlet.send(_Item(content, sizes, is_in_slot))
    if not is_in_slot:
        for array in arrays:
            outlet.send_bytes(array)


def _starts(sizes: Sequence[int]) -> list[int]:
    """Where each array begins, and where the next one would."""
    return list(itertools.accumulate((-(-size // ALIGNMENT) * ALIGNMENT for size in sizes), initial=0))


def _portable(error: BaseException) -> BaseException:
    """The error, in a form that arrives as what it is."""
    if isinstance(error, StopIteration):
        return StopIteration()
    if not isinstance(error, UserError):
        return RuntimeError("in a loader process:\n" + "".join(traceback.format_exception(error)).rstrip())
    with contextlib.suppress(Exception):
        if str(pickle.loads(pickle.dumps(error))) == str(error):
            return error
    return UserError(str(error))


def _start(work: IO[bytes], files: tuple[int, ...], numbers: tuple[int, ...]) -> "subprocess.Popen[bytes]":
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path),
        "PYTHONSAFEPATH": "1",  # a file of the current folder is no module, unless it is one here
        "OPENBLAS_NUM_THREADS": "1",  # numpy would start one for each core
    }
    command = [sys.executable, "-c", START, *map(str, (os.getpid(), *files, *numbers))]
    before = signal.pthread_sigmask(signal.SIG_BLOCK, PARENTS_SIGNALS)  # inherited, until `serve` ignores them
    try:
        return subprocess.Popen(command, stdin=work, pass_fds=files, env=environment)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()  # it holds nothing that would want to be put in order
    process.wait()


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


def _memory_file() -> IO[bytes]:
    return os.fdopen(os.memfd_create("zeromt-prefetch"), "w+b")
