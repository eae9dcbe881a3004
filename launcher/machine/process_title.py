"""Sets what other processes see of a forked process: its command line and environment."""

import ctypes
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOM = "ZEROMT_ROOM"
"""An environment variable that reserves space for a fork's own variables."""
ROOM_LENGTH = 2048
_ARGUMENTS, _ENVIRONMENT = slice(45, 47), slice(47, 49)
"""Fields of /proc/PID/stat, after the name, with the addresses of command line and environment."""


def show_as(command: Sequence[str], variables: Mapping[str, str]) -> None:
    """Make `ps`, `pgrep -f` and /proc/PID/environ show this command, and these variables as well.

    They read the memory in which the kernel put the arguments of the program that this process was forked from. This
    memory is overwritten: the command is cut to the old length, and variables that do not fit into `ROOM` are omitted.
    """
    os.environ.pop(ROOM, None)  # also the C library's pointer to it
    try:
        fields = Path("/proc/self/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        begin, end = map(int, fields[_ARGUMENTS])
        environment_begin, environment_end = map(int, fields[_ENVIRONMENT])
    except (OSError, ValueError):  # not Linux, or an old kernel
        return
    if begin and end > begin:
        words = b"".join(os.fsencode(word) + b"\0" for word in command)[: end - begin - 1]
        ctypes.memmove(begin, words.ljust(end - begin, b"\0"), end - begin)
    if environment_begin:
        content = ctypes.string_at(environment_begin, environment_end - environment_begin)
        at = content.find(b"\0" + os.fsencode(ROOM) + b"=") + 1
        room = content.find(b"\0", at) - at
        text = b""
        for name, value in variables.items():
            entry = os.fsencode(f"{name}={value}") + b"\0"
            text += entry if len(text) + len(entry) <= room else b""
        if at and text:
            ctypes.memmove(environment_begin + at, text.ljust(room, b"\0"), room)
