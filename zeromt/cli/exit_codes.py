"""The exit code of an error, and its message."""

import os
import select
import sys
import traceback

from configs.process.streams import tell


def code_of(error: Exception) -> int:
    """The exit code of an error; an error that the user can fix is printed as one line."""
    if isinstance(error, BrokenPipeError) and _is_stdout_closed():
        return 1  # the reader of the output has closed the pipe (`| head`)
    if _is_users(error):
        for line in str(error).splitlines():
            tell(f"zeromt: error: {line}")
        return 2
    if isinstance(error, OSError) and error.errno is not None:
        from configs.process.files import as_file_error, describe  # imported only when needed

        of_output = "standard output: " if error.filename is None and not _takes_output() else ""
        tell(f"zeromt: error: {of_output}{describe(error)}")
        return 1 if as_file_error(error) is None else 2
    tell(traceback.format_exc().rstrip("\n"))
    return 1


def _is_users(error: Exception) -> bool:
    """Whether the user can fix the error. If `configs` was never imported, it is not such an error."""
    errors = sys.modules.get("configs.errors")
    return errors is not None and isinstance(error, errors.UserError)


def _takes_output() -> bool:
    """Whether standard output can be written: what it holds, and nothing, as a text longer than that is gone by now."""
    try:
        sys.stdout.flush()
        os.write(sys.stdout.fileno(), b"")
    except (OSError, ValueError):
        return False
    return True


def _is_stdout_closed() -> bool:
    """Whether the other end of stdout's pipe is gone."""
    poll = select.poll()
    try:
        poll.register(sys.stdout.fileno(), 0)
    except (OSError, ValueError):  # closed, or not a file
        return False
    return any(event & select.POLLERR for _, event in poll.poll(0))
