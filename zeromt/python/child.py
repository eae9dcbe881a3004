"""`python -m zeromt.python.child PID COMMAND ...`: a command that saves and stops when the process PID ends.

A restarted notebook kernel, or a killed script, must not leave an unknown training behind that holds its run's lock.
"""

import contextlib
import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> int:
    """Run the command.

    Returns:
        Its exit code.
    """
    with contextlib.suppress(OSError, AttributeError):  # another C library: the command then goes on
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != int(sys.argv[1]):  # the process ended before the line above
        return 75
    from zeromt.cli.main import main as run

    return run(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
