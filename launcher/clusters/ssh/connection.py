"""One host of a job that ssh started: its connection, its lines, its end."""

import collections
import contextlib
import json
import os
import queue
import re
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO

from configs import UserError
from launcher.clusters.ssh.hosts import Host
from launcher.clusters.ssh.remote import ERR, OUT, READY

UNREACHABLE = 255
"""Exit code for an error of ssh itself; other codes are the remote command's."""
_CONTROLS = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f]")
_LAST_LINES = 3
_TERMINAL = threading.Lock()


@dataclass(kw_only=True, slots=True, frozen=True)
class SshSettings:
    """Settings of ssh for every host."""

    python: str
    connect_seconds: int
    lost_seconds: int
    """Seconds of silence after which a host is lost."""
    config: str | None = None
    identity: str | None = None
    word: str = field(default_factory=lambda: secrets.token_hex(16))
    """Word of this launch: a host repeats it when it is ready, and what its shell prints before is ignored."""


def ssh_command(host: Host, settings: SshSettings) -> list[str]:
    """The command line of a host's ssh. A remote shell only sees what follows the host.

    Its parts were checked to need no quotes; the job itself is sent through the connection.
    """
    options = {
        "BatchMode": "yes",
        "ConnectTimeout": settings.connect_seconds,
        "ServerAliveInterval": max(1, settings.lost_seconds // 3),
        "ServerAliveCountMax": 3,
        "ControlMaster": "no",
        "ControlPath": "none",
        "ClearAllForwardings": "yes",
        "LogLevel": "INFO",  # at this level ssh names the server that does not respond
    }
    return [
        "ssh",
        "-T",
        *(["-F", settings.config] if settings.config else []),
        *(["-i", settings.identity] if settings.identity else []),
        *(word for name, value in options.items() for word in ("-o", f"{name}={value}")),
        *(["-p", str(host.port)] if host.port else []),
        *(["-l", host.user] if host.user else []),
        "--",
        host.name,
        f"exec {settings.python} -P -u -m launcher.clusters.ssh.remote {settings.word}",
    ]


class Connection:
    """The ssh process of a host, and its output. This object is put into `events` whenever something changes."""

    def __init__(self, host: Host, settings: SshSettings, events: "queue.Queue[Connection]") -> None:
        """Connect; `is_ready` and `code` show the result.

        Raises:
            UserError: ssh is not installed.
        """
        self.host = host
        self.is_ready = False
        """Whether the host is waiting for its job, or has it."""
        self.is_sent = False
        """Whether it has its job."""
        self.code: int | None = None
        """Exit code of the host's launch; None while it is running."""
        self._last_lines: collections.deque[str] = collections.deque(maxlen=_LAST_LINES)
        self._events = events
        self._ready = f"{READY}{settings.word}\n".encode()
        command = ssh_command(host, settings)
        # In its own session, so that Ctrl-C does not end the connection before the ranks have saved.
        try:
            self._ssh = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
            )
        except OSError as error:
            raise UserError(
                f"{command[0]}: cannot be run: {error.strerror}; install OpenSSH's client, or put it on PATH"
            ) from error
        threading.Thread(target=self._read, daemon=True).start()

    def begin(self, arguments: Sequence[str], directory: str, environment: Mapping[str, str], **seconds: float) -> None:
        """Send the job: the arguments of `launch node`, its folder and its environment."""
        job = {"arguments": list(arguments), "directory": directory, "environment": dict(environment), **seconds}
        assert self._ssh.stdin is not None
        with contextlib.suppress(OSError):  # the process is gone, which is noticed elsewhere
            self._ssh.stdin.write(json.dumps(job).encode() + b"\n")
            self._ssh.stdin.flush()
        self.is_sent = True
        os.set_blocking(self._ssh.stdin.fileno(), False)

    def send(self, word: str) -> None:
        """Send a word that `launcher.clusters.ssh.remote` knows. If the connection blocks, it is lost."""
        if not self.is_sent:  # it would be read as the job
            return
        assert self._ssh.stdin is not None
        with contextlib.suppress(OSError):
            os.write(self._ssh.stdin.fileno(), f"{word}\n".encode())

    def hang_up(self) -> None:
        """End the connection. A host that has no job yet ends with it."""
        with contextlib.suppress(ProcessLookupError):
            self._ssh.terminate()

    def failure(self) -> str:
        """One line on why ssh ended."""
        said = "; ".join(self._last_lines) or f"ssh ended with exit code {self.code}"
        return said if self.is_ready else f"cannot be reached: {said}"

    def _read(self) -> None:
        assert self._ssh.stdout is not None
        assert self._ssh.stderr is not None
        words = threading.Thread(target=self._read_words, args=(self._ssh.stderr,), daemon=True)
        words.start()
        for line in self._ssh.stdout:
            mark, text = chr(line[0]), line[1:]
            if line == self._ready:
                self.is_ready = True
                self._events.put(self)
            elif mark in (OUT, ERR) and self.is_ready:
                self._show(text, sys.stdout if mark == OUT else sys.stderr)
        words.join()
        self.code = self._ssh.wait()
        self._events.put(self)

    def _read_words(self, pipe: IO[bytes]) -> None:
        """Read messages of ssh itself, and of a shell that finds no Python."""
        for line in pipe:
            if text := _plain(line):
                self._last_lines.append(text)

    def _show(self, line: bytes, stream: IO[str]) -> None:
        with _TERMINAL, contextlib.suppress(OSError, ValueError):  # there is no reader any more
            stream.write(f"[{self.host.label}] {_plain(line)}\n")
            stream.flush()


def _plain(line: bytes) -> str:
    """A line without colours and control characters."""
    return _CONTROLS.sub("", line.decode(errors="replace")).rstrip()


def all_are(connections: Sequence[Connection], events: "queue.Queue[Connection]", deadline: float) -> bool:
    """Wait until every host is ready or has ended; False if the time runs out before."""
    while not all(c.is_ready or c.code is not None for c in connections):
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        with contextlib.suppress(queue.Empty):
            events.get(timeout=min(left, 0.2))
    return True
