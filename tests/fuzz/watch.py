"""What a call touches outside of what it was given: canaries under inotify, and whatever Python code opens.

inotify tells of every open, read, write and deletion of the canaries, C code's too, through whatever link. What Python
opens elsewhere on the machine, an audit hook in the call's process tells; it sees neither C code nor the processes that
a command starts, and a path relative to an open folder counts as one in the current folder.
"""

import ctypes
import json
import os
import struct
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.conftest import REPO

SECRET = "canary-5d0c2b71"
"""In every canary."""
OPENED = "opened.jsonl"
EVENTS = {
    0x1: "read", 0x2: "written", 0x4: "attributes changed", 0x20: "opened", 0x40: "moved away", 0x80: "moved here",
    0x100: "made", 0x200: "deleted",
}  # fmt: skip
"""Of <sys/inotify.h>."""
READS = ("read", "opened")
_AUDITED = {
    "open": 1, "os.listdir": 1, "os.scandir": 1, "os.remove": 1, "os.rmdir": 1, "os.mkdir": 1, "os.chmod": 1,
    "os.chown": 1, "os.truncate": 1, "os.utime": 1, "os.rename": 2, "os.link": 2, "os.symlink": 2,
}  # fmt: skip
"""Events of Python's, with how many paths they begin with."""
_EVENT = struct.Struct("iIII")


class Watch:
    """Tells what happened to a folder and all below it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._names: dict[int, str] = {}

    def __enter__(self) -> "Watch":
        libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        assert self._descriptor >= 0, os.strerror(ctypes.get_errno())
        for at in [at for at, _, _ in os.walk(self._folder)]:  # all before the first is watched
            number = libc.inotify_add_watch(self._descriptor, os.fsencode(at), sum(EVENTS))
            assert number >= 0, os.strerror(ctypes.get_errno())
            self._names[number] = os.path.relpath(at, self._folder.parent)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.close(self._descriptor)

    def events(self) -> tuple[tuple[str, str], ...]:
        """What happened since the last call, as (what, path), each once."""
        return tuple(dict.fromkeys(self._events()))

    def _events(self) -> Iterator[tuple[str, str]]:
        while True:
            try:
                content = os.read(self._descriptor, 1 << 16)
            except BlockingIOError:
                return
            at = 0
            while at < len(content):
                number, mask, _, length = _EVENT.unpack_from(content, at)
                at += _EVENT.size + length
                name = os.fsdecode(content[at - length : at].rstrip(b"\0"))
                path = f"{self._names.get(number, '?')}/{name}".rstrip("/")
                yield from ((what, path) for bit, what in EVENTS.items() if mask & bit)


def tell_opened(logs: Path) -> None:
    """Write down from now on what this process opens, lists, makes and removes."""
    told = os.open(logs / OPENED, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    seen: set[str] = set()

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        for path in arguments[: _AUDITED.get(event, 0)]:
            if isinstance(path, str | bytes | os.PathLike):
                name = os.path.abspath(os.fsdecode(path))  # noqa: PTH100
                if name not in seen:
                    seen.add(name)
                    os.write(told, json.dumps(name).encode() + b"\n")

    sys.addaudithook(hook)


def told(logs: Path) -> tuple[str, ...]:
    """What `tell_opened` has written."""
    try:
        return tuple(json.loads(line) for line in (logs / OPENED).read_text().splitlines())
    except OSError:
        return ()


def outside(opened: tuple[str, ...], given: Path, home: Path) -> list[str]:
    """Of these paths those that are neither in the folder that a call was given nor the system's, nor for fonts."""
    fonts = (str(home / ".fonts"), str(home / ".local/share/fonts"))
    own = (str(given), str(REPO), sys.prefix, sys.base_prefix, *sysconfig.get_paths().values())
    system = ("/proc", "/sys", "/usr", "/lib", "/lib64", "/etc", "/dev/null", "/dev/urandom", "/dev/shm", "/opt")
    allowed = {os.path.realpath(path) for path in own} | {*own, *system, *fonts}
    return [path for path in opened if not any(path == one or path.startswith(f"{one}/") for one in allowed)]
