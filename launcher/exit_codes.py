"""From an error to an exit code, and to the line that tells it."""

import os
import select
import sys
import traceback

from trainer.runs.process.streams import tell


def code_of(error: Exception) -> int:
    """The exit code of an error, which is told in a line where the user can do something about it."""
    if isinstance(error, BrokenPipeError) and _is_stdout_closed():
        return 1  # whoever read the output has enough (`| head`)
    if _is_users(error):
        for line in str(error).splitlines():
            tell(f"zeromt: error: {line}")
        return 2
    if isinstance(error, ImportError | AttributeError):
        from trainer.runs.process.clash import find_clash

        if (clash := find_clash()) is not None:
            tell(f"zeromt: error: {clash}")
            return 2
    if isinstance(error, OSError) and error.errno is not None:
        from configs.files import describe, problem_of  # not before it is needed

        of_output = "standard output: " if error.filename is None and not _takes_output() else ""
        tell(f"zeromt: error: {of_output}{describe(error)}")
        return 1 if problem_of(error) is None else 2
    traceback.print_exc()
    return 1


def _is_users(error: Exception) -> bool:
    """Whether the error is the user's to mend. Where `configs` was never imported none can be."""
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
    except (OSError, ValueError):  # closed, or no file at all
        return False
    return any(event & select.POLLERR for _, event in poll.poll(0))
