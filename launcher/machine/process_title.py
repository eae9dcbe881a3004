"""What the kernel tells others of a forked process: its command line and its environment."""

import ctypes
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOM = "ZEROMT_ROOM"
"""Environment variable that only takes up room, in which a fork's own variables can be written."""
ROOM_LENGTH = 2048
_ARGUMENTS, _ENVIRONMENT = slice(45, 47), slice(47, 49)
"""Of /proc/PID/stat behind the name: where the command line begins and ends in memory, and the environment."""


def show_as(command: Sequence[str], variables: Mapping[str, str]) -> None:
    """Have `ps`, `pgrep -f` and /proc/PID/environ tell of this command, and of these variables as well.

    They show the memory in which the kernel once put the words of the program that this process was forked from. It is
    overwritten: the command is cut to its length, and variables that do not fit `ROOM` are left out.
    """
    os.environ.pop(ROOM, None)  # the C library's pointer to it too
    try:
        fields = Path("/proc/self/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        begin, end = map(int, fields[_ARGUMENTS])
        environment_begin, environment_end = map(int, fields[_ENVIRONMENT])
    except (OSError, ValueError):  # no Linux, or an old one
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
