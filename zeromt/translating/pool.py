"""Translation in several processes, each with its own models: one per GPU, or several on a CPU.

Every process gets every chunk of lines and does its part of the batches, so that batches and translations are the same
for any number of processes.
"""

import os
import queue
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from configs import UserError
from configs.plugins import dumps, loads
from configs.process.terminal import filter_terminals
from trainer.inference.translation.translator import OnLines, nobody
from trainer.ranks.process import tune_process
from zeromt.translating.worker import Answer, Chunk, Line, Settings, Worker

AHEAD = 2
"""Chunks in flight before the first answer is waited for."""
READY = "ready"
START = "from zeromt.translating.pool import serve; serve()"


class Pool:
    """Processes that translate together; `close` ends them at once.

    Args:
        devices: the GPU that each process sees; None for a CPU.
    """

    def __init__(self, settings: Settings, devices: Sequence[str | None]) -> None:
        self._workers: list[_Worker] = []
        try:
            for rank, device in enumerate(devices):
                self._workers.append(_Worker(rank, len(devices), device))
            for worker in self._workers:
                worker.send(dumps(settings))
            for worker in self._workers:
                worker.receive()  # its models are loaded
        except BaseException:
            self.close()
            raise

    def answers(self, chunks: Iterable[Chunk | None], on_lines: OnLines = nobody) -> Iterator[Answer]:
        """The answers to the chunks, in order; a None among the chunks asks for all answers before it.

        Args:
            chunks: of lines.
            on_lines: called for every finished batch, while waiting for an answer.

        Raises:
            UserError: a line or a setting is wrong.
            RuntimeError: a process failed or was killed.
        """
        waiting = 0
        for chunk in chunks:
            if chunk is None:
                for _ in range(waiting):
                    yield self._receive(on_lines)
                waiting = 0
                continue
            for worker in self._workers:
                worker.send(chunk)
            waiting += 1
            if waiting > AHEAD:
                yield self._receive(on_lines)
                waiting -= 1
        for _ in range(waiting):
            yield self._receive(on_lines)

    def close(self) -> None:
        """Kill the processes, whatever they are doing."""
        for worker in self._workers:
            worker.close()

    def _receive(self, on_lines: OnLines) -> Answer:
        answers: dict[int, Answer] = {}
        while len(answers) < len(self._workers):
            waiting = {w.connection: n for n, w in enumerate(self._workers) if n not in answers}
            for connection in wait(waiting):
                number = waiting[connection]  # type: ignore[index]
                message = self._workers[number].receive()
                if isinstance(message, int):  # lines of a finished batch
                    on_lines(message)
                else:
                    answers[number] = message
        columns = zip(*(answer.lines for answer in answers.values()), strict=True)
        lines: list[Line | None] = [next((line for line in column if line is not None), None) for column in columns]
        return replace(answers[0], lines=lines)


class _Worker:
    """The parent's handle of one process. The process has its own session, so that Ctrl-C does not reach it."""

    def __init__(self, rank: int, world_size: int, device: str | None) -> None:
        self.connection, theirs = Pipe()
        threads = max(1, len(os.sched_getaffinity(0)) // world_size)
        environment = {
            "OMP_NUM_THREADS": str(threads),
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path),
            "PYTHONSAFEPATH": "1",  # no modules from the current folder, unless this process has it on its path too
        }
        if device is not None:
            environment["CUDA_VISIBLE_DEVICES"] = device
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", START, str(theirs.fileno()), str(rank), str(world_size)],
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr.fileno(),  # only translations go to our stdout
                pass_fds=(theirs.fileno(),),
                env=environment,
                start_new_session=True,
            )

    def send(self, message: bytes | Chunk) -> None:
        try:
            self.connection.send(message)
        except OSError as error:
            raise self._failure() from error

    def receive(self) -> Any:
        try:
            message: Any = self.connection.recv()
        except (EOFError, OSError) as error:
            raise self._failure() from error
        if isinstance(message, BaseException):
            raise message
        return message

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self.connection.close()

    def _failure(self) -> BaseException:
        """Why the process is gone: its last message, or how it ended."""
        try:
            while self.connection.poll():
                if isinstance(message := self.connection.recv(), BaseException):
                    return message
        except (EOFError, OSError):
            pass
        code = self._process.wait()
        how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
        return RuntimeError(f"translation process {self._process.pid} ended {how}")


def serve() -> None:
    """The main function of a pool's process. It ends at once when its parent closes the pipe."""
    filter_terminals()
    descriptor, rank, world_size = map(int, sys.argv[1:])
    connection: Connection[Any, Any] = Connection(descriptor)
    inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(connection, inbox), daemon=True).start()
    try:
        tune_process()
        worker = Worker(loads(inbox.get()), rank=rank, world_size=world_size)
        connection.send(READY)
        while True:
            connection.send(worker.do(inbox.get(), connection.send))
    except UserError as error:
        connection.send(UserError(str(error)))
    except BaseException:
        connection.send(RuntimeError("in a translation process:\n" + traceback.format_exc().rstrip()))


def _read(connection: "Connection[Any, Any]", inbox: "queue.SimpleQueue[Any]") -> None:
    while True:
        try:
            inbox.put(connection.recv())
        except (EOFError, OSError):
            os._exit(0)
