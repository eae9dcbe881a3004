"""Runs a metric's command once, at the lowest priority.

    python scoring_process.py REQUEST RESULT SECONDS PARENT COMMAND...

REQUEST has a JSON object a line (set, languages, source, hypothesis, references), which the command reads from its
standard input. It answers with as many lines, each a number or {"score": number}, whose means are the scores of the
sets; or with one line, {"scores": {SET: number, ...}}. RESULT gets {"scores": {SET: number}} or {"problem": TEXT}.
It imports nothing of this project, so that it starts at once and takes little memory.
"""

import contextlib
import ctypes
import json
import math
import os
import secrets
import signal
import subprocess
import sys
import threading
import types
from pathlib import Path
from typing import IO, Any

PR_SET_PDEATHSIG = 1
LINE_BYTES = 4096
"""Most bytes of an answer for each line of the request (and a margin of as many lines again)."""
LAST_WORDS = 2000
"""Bytes of the command's stderr that are kept."""


class RejectedError(Exception):
    """The command gave no valid answer."""


def main(request: str, result: str, seconds: str, parent: str, *command: str) -> None:
    """Run the command and write its scores, or the problem that it had, to `result`."""
    dies_with_parent(signal.SIGTERM, int(parent))
    os.nice(19)
    path = Path(request)
    try:
        answer: dict[str, Any] = {"scores": read(run(command, path, float(seconds)), path)}
    except RejectedError as error:
        answer = {"problem": str(error)}
    beside = Path(f"{result}.{secrets.token_hex(8)}.tmp")  # a name that nobody can have made a link of
    with beside.open("x", encoding="utf-8") as file:
        file.write(json.dumps(answer))
    beside.replace(result)


def run(command: tuple[str, ...], request: Path, seconds: float) -> bytes:
    """The command's answer. The command and its children end with this process.

    Raises:
        RejectedError: it cannot be started, fails, takes too long or writes too much.
    """
    with request.open("rb") as lines:
        most = LINE_BYTES * (2 * sum(1 for _ in lines) + 16)
    me = os.getpid()
    with request.open("rb") as stdin:
        try:
            process = subprocess.Popen(
                command,
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                preexec_fn=lambda: dies_with_parent(signal.SIGKILL, me),
            )
        except (OSError, ValueError) as error:
            raise RejectedError(f"cannot be started: {error}") from error

    def end() -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

    def asked_to(number: int, frame: types.FrameType | None) -> None:
        end()
        os._exit(128 + number)

    signal.signal(signal.SIGTERM, asked_to)
    assert process.stdout is not None
    assert process.stderr is not None
    out = Reader(process.stdout, first=most, on_more=end)
    err = Reader(process.stderr, last=LAST_WORDS)
    is_late = False
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        is_late = True
    end()  # also the processes that it has left behind
    process.wait()
    if is_late:
        raise RejectedError(f"took longer than {seconds:.0f} s and was killed")
    if out.has_more():
        raise RejectedError(f"wrote more than {most} bytes and was killed")
    if process.returncode:
        words = err.text().strip().splitlines()
        raise RejectedError(f"ended with exit code {process.returncode}{': ' + words[-1][:300] if words else ''}")
    return out.read()


class Reader:
    """Reads a pipe to its end in a thread, and keeps its first or its last bytes."""

    def __init__(self, pipe: IO[bytes], *, first: int = 0, last: int = 0, on_more: Any = None) -> None:
        self._pipe, self._first, self._last, self._on_more = pipe, first, last, on_more
        self._bytes = b""
        self._thread = threading.Thread(target=self._go, daemon=True)
        self._thread.start()

    def _go(self) -> None:
        while chunk := os.read(self._pipe.fileno(), 1 << 16):
            if self._last:
                self._bytes = (self._bytes + chunk)[-self._last :]
            elif len(self._bytes) <= self._first:
                self._bytes += chunk
                if len(self._bytes) > self._first:
                    self._on_more()

    def read(self) -> bytes:
        """The bytes that were kept."""
        self._thread.join(10)
        return self._bytes

    def has_more(self) -> bool:
        """Whether more came than is kept."""
        return len(self.read()) > self._first

    def text(self) -> str:
        """The bytes as text; what is not UTF-8 is replaced."""
        return self.read().decode(errors="replace")


def read(answer: bytes, request: Path) -> dict[str, float]:
    """Parse an answer: the score of each set.

    Raises:
        RejectedError: the answer has another form.
    """
    with request.open(encoding="utf-8") as lines:
        sets = [json.loads(line)["set"] for line in lines]
    try:
        answers = [json.loads(line) for line in answer.decode().splitlines() if line.strip()]
    except (ValueError, RecursionError) as error:
        raise RejectedError(f"answered {answer[:60]!r}; expected a number or a JSON object per line") from error
    if len(answers) == 1 and isinstance(answers[0], dict) and isinstance(answers[0].get("scores"), dict):
        whole = answers[0]["scores"]
        if set(whole) != set(sets):
            raise RejectedError(f"answered scores of {sorted(whole)}; expected those of {sorted(set(sets))}")
        return {name: number(value) for name, value in whole.items()}
    if len(answers) != len(sets):
        raise RejectedError(f"answered {len(answers)} lines to {len(sets)}")
    by_set: dict[str, list[float]] = {}
    for name, one in zip(sets, answers, strict=True):
        by_set.setdefault(name, []).append(number(one.get("score") if isinstance(one, dict) else one))
    return {name: math.fsum(values) / len(values) for name, values in by_set.items()}


def number(value: object) -> float:
    """A finite number.

    Raises:
        RejectedError: it is not one.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise RejectedError(f"answered {str(value)[:60]!r} instead of a number")
    return float(value)


def dies_with_parent(number: int, parent: int) -> None:
    """Make the kernel signal this process when its parent ends."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os._exit(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
