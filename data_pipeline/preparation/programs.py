"""Programs that answer lines of JSON: started once, without a shell, fed and read by threads, ended with this process.

Each line in is an object with an `id`, each line out an answer to one of them, in any order. A program must flush what
it writes: until it does, nothing of it comes.
"""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import IO, Any

from configs.errors import UserError
from configs.process.files import inside
from configs.process.signals import PR_SET_PDEATHSIG, prctl

NUMBER = "ZEROMT_PROGRAM"
"""Environment variable: the number of a program, from 0, among those of one command, as to choose its GPU by."""
_END_SECONDS = 5.0
"""For a program to end after its input has."""

Inbox = queue.SimpleQueue[tuple["Program", bytes | None]]
"""What programs have written, a line each; None where one has ended."""


class Program:
    """A running program: lines are put to it and taken from it by threads, so that neither side waits for both."""

    def __init__(self, command: Sequence[str], place: str, inbox: Inbox, number: int) -> None:
        """Start it.

        Args:
            command: the program and its arguments.
            place: the field that names it, for messages.
            inbox: for its answers, and those of the command's other programs.
            number: its own among several of a command, which it finds in its environment.

        Raises:
            UserError: it cannot be started.
        """
        self.name = f"{place}: {command[0]!r}"
        """For messages."""
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, NUMBER: str(number)},
                preexec_fn=lambda: prctl(PR_SET_PDEATHSIG, signal.SIGTERM),  # even if this process is killed
            )
        except OSError as error:
            raise UserError(f"{self.name} cannot be started: {error.strerror or error}") from error
        self._outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._inbox = inbox
        for work, pipe in ((self._put, self._process.stdin), (self._take, self._process.stdout)):
            threading.Thread(target=work, args=(pipe,), daemon=True).start()

    def send(self, tree: Mapping[str, Any]) -> None:
        """Put a line to it."""
        self._outbox.put(f"{json.dumps(tree, ensure_ascii=False)}\n".encode())

    def read(self, line: bytes | None) -> dict[str, Any]:
        """What it has written, as an object.

        Raises:
            UserError: as for `answer`.
        """
        if line is None:
            raise UserError(
                f"{self.name} {self._end()} while lines were waited for; what is finished stays: see what it printed, "
                "and give the same command again"
            )
        try:
            tree = inside.parse_json(line)
        except ValueError:
            tree = None
        if not isinstance(tree, dict) or type(tree.get("id")) is not int:
            shown = line[:80].decode(errors="backslashreplace").strip()
            raise UserError(f"{self.name} answered {shown!r}; allowed is a JSON object with an id")
        return tree

    def _end(self) -> str:
        """How it has ended, in words."""
        try:
            code = self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            return "closed its output"
        return f"ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"

    def close(self) -> None:
        """End its input and wait; kill it if it does not end."""
        self._outbox.put(None)
        try:
            self._process.wait(_END_SECONDS if sys.exc_info()[0] is None else 0.2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _put(self, pipe: IO[bytes]) -> None:
        with contextlib.suppress(OSError):
            while (line := self._outbox.get()) is not None:
                pipe.write(line)
                if self._outbox.empty():
                    pipe.flush()
        with contextlib.suppress(OSError):
            pipe.close()

    def _take(self, pipe: IO[bytes]) -> None:
        with contextlib.suppress(OSError):
            for line in pipe:
                if line.strip():
                    self._inbox.put((self, line))
        self._inbox.put((self, None))


def answer(inbox: Inbox, seconds: float) -> dict[str, Any] | None:
    """The next answer of the programs that write to an inbox; None if there is none in time.

    Raises:
        UserError: one has ended, or its answer is no JSON object with an id.
    """
    try:
        program, line = inbox.get(timeout=max(0.0, seconds))
    except queue.Empty:
        return None
    return program.read(line)
