"""A command whose output is a terminal, made by `pty`."""

import contextlib
import fcntl
import importlib
import os
import pty
import re
import struct
import termios
from collections.abc import Mapping, Sequence

CODES = re.compile(r"\x1b\[[0-9;]*[mKA]")
"""Colours, emptying the rest of a line, and tqdm's steps to the line above: all that is ever written."""


def on_a_terminal(
    module: str, arguments: Sequence[str], width: int, variables: Mapping[str, str], log: str | None = None
) -> tuple[int, str]:
    """`main` of a module, forked, on a terminal of so many columns: its exit code and what came there.

    Args:
        module: trainer.main or zeromt.cli.main.
        arguments: of the command.
        width: columns.
        variables: of the environment, beside what is there.
        log: a file that standard output goes to in place of the terminal.
    """
    pid, terminal = pty.fork()
    if pid == 0:
        code = 70
        try:
            os.environ |= variables
            if log is not None:
                os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT), 1)
            from configs.process.streams import open_standard_streams

            open_standard_streams()
            code = importlib.import_module(module).main(list(arguments))
        finally:
            os._exit(code)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    output = b""
    with contextlib.suppress(OSError):  # EIO: nobody writes any more
        while part := os.read(terminal, 1 << 16):
            output += part
    os.close(terminal)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status), output.decode().replace("\r\n", "\n")


def seen(text: str) -> list[str]:
    """The lines that stay on the terminal: of each, what was written last from its beginning on."""
    return [CODES.sub("", line.rpartition("\r")[2]).rstrip() for line in text.split("\n")]


def bars(text: str) -> list[str]:
    """The bars that were drawn, in their order."""
    return [part for line in text.split("\n") for part in line.split("\r") if "% |" in part]
