"""Started by `zeromt launch ssh` on every host: runs `launch node` for as long as the connection lasts.

When ssh without a terminal is killed, its remote command keeps running. So this process reads its stdin, the
connection: first the job as a line of JSON, so that no part of it reaches a shell; then `TERM` or `USR1`, a request to
save and stop; `KILL`, to kill; empty lines as heartbeats. When the connection ends or is silent for too long, the
launcher is gone or may be, and the ranks save and stop.

On stdout it writes one line `R` with the word of its command line, "ready", then the job's output line by line,
prefixed with `O` (its stdout) or `E` (its stderr). The word is the launch's own, so that nothing that a shell's startup
files print is taken for it. A blocked connection must not stop the ranks: what cannot be written is dropped.
"""

import json
import os
import select
import signal
import sys
import threading
import time
import traceback
from typing import IO

from configs import UserError
from configs.process.streams import tell
from launcher.agents.node import launch_node
from launcher.machine.processes import adopt_orphans, kill_descendants
from launcher.machine.supervise import Supervisor
from launcher.options.node import parse_launch_node

READY, OUT, ERR = "R", "O", "E"
_REQUESTS = {"TERM": signal.SIGTERM, "USR1": signal.SIGUSR1}
_LONGEST_LINE = 1 << 16
_LAST_WORDS_SECONDS = 5.0
_STALL_SECONDS = 10.0


def main() -> int:
    """Wait for a job, run it, and return its exit code; 1 if none came."""
    adopt_orphans()
    with Supervisor() as supervisor:
        output = _Output()
        connection = _Connection()
        output.write(READY, sys.argv[1].encode() + b"\n")
        line = connection.line(None)
        code = 1
        if line is not None:
            job = json.loads(line)
            connection.watch(job["silence_seconds"], job["grace_seconds"])
            code = _run(supervisor, job)
        supervisor.settle()
        kill_descendants()  # processes that outlived their parents
        output.close()
    return code


def _run(supervisor: Supervisor, job: dict[str, object]) -> int:
    """Run `launch node` with the received arguments."""
    try:
        directory, environment, arguments = job["directory"], job["environment"], job["arguments"]
        assert isinstance(directory, str)
        assert isinstance(environment, dict)
        assert isinstance(arguments, list)
        try:
            os.chdir(directory)
        except OSError as error:
            raise UserError(
                f"--directory: {directory!r}: {error.strerror}; give a folder that every host has"
            ) from error
        os.environ.update(environment)
        return launch_node(supervisor, **parse_launch_node(arguments))
    except SystemExit as leaving:  # a usage error, which has been printed
        return leaving.code if isinstance(leaving.code, int) else 2
    except UserError as error:
        for line in str(error).splitlines():
            tell(f"zeromt: error: {line}")
        return 2
    except Exception:
        traceback.print_exc()
        return 1


class _Output:
    """Replaces stdout and stderr of this process and its children by pipes, and forwards their output."""

    def __init__(self) -> None:
        self._to = os.dup(1)
        os.set_blocking(self._to, False)
        self._lock = threading.Lock()
        self._is_stalled = False
        self._is_cut = True  # a login shell may have printed something before the first line
        self._threads = []
        for number, mark in ((1, OUT), (2, ERR)):
            read, write = os.pipe()
            os.dup2(write, number)
            os.close(write)
            self._threads.append(
                threading.Thread(target=self._pass_on, args=(os.fdopen(read, "rb"), mark), daemon=True)
            )
            self._threads[-1].start()
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]

    def write(self, mark: str, line: bytes) -> None:
        """Write one line; it is dropped if the connection is closed or blocked for some seconds."""
        with self._lock:
            data = (b"\n" if self._is_cut else b"") + mark.encode() + line
            self._is_cut = True
            try:
                while data:
                    if not select.select([], [self._to], [], 0.0 if self._is_stalled else _STALL_SECONDS)[1]:
                        self._is_stalled = True
                        return
                    data = data[os.write(self._to, data) :]
            except OSError:
                return
            self._is_stalled = self._is_cut = False

    def close(self) -> None:
        """Forward the last output, without waiting for left-over processes that may hold the pipes."""
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for number in (1, 2):
            os.dup2(nowhere, number)
        deadline = time.monotonic() + _LAST_WORDS_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _pass_on(self, pipe: IO[bytes], mark: str) -> None:
        while line := pipe.readline(_LONGEST_LINE):
            self.write(mark, line if line.endswith(b"\n") else line + b"\n")


class _Connection:
    """The connection, read from stdin."""

    def __init__(self) -> None:
        self._buffer = b""

    def line(self, seconds: float | None) -> str | None:
        """The next line; None if the connection has ended or was silent for this many seconds."""
        while b"\n" not in self._buffer:
            if not select.select([0], [], [], seconds)[0]:
                return None
            try:
                more = os.read(0, 1 << 16)
            except OSError:
                return None
            if not more:
                return None
            self._buffer += more
        line, self._buffer = self._buffer.split(b"\n", 1)
        return line.decode(errors="replace")

    def watch(self, silence_seconds: float, grace_seconds: float) -> None:
        """Handle requests in a thread from now on; when the connection ends, save, stop and leave no process behind.

        Args:
            silence_seconds: of silence, after which the connection counts as ended.
            grace_seconds: from then to the kill.
        """
        threading.Thread(target=self._watch, args=(silence_seconds, grace_seconds), daemon=True).start()

    def _watch(self, silence_seconds: float, grace_seconds: float) -> None:
        while (line := self.line(silence_seconds)) is not None:
            if line == "KILL":
                _end_by_force()
            if line in _REQUESTS:
                _send_to_self(_REQUESTS[line])
        _send_to_self(signal.SIGTERM)
        time.sleep(grace_seconds)
        _end_by_force()


def _send_to_self(number: signal.Signals) -> None:
    """Send a signal to the supervisor's handler in the main thread."""
    os.kill(os.getpid(), number)


def _end_by_force() -> None:
    kill_descendants()
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
