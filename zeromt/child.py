"""`python -m zeromt.child PID COMMAND ...`: a command of `zeromt` that saves and stops when the process PID ends.

A notebook's kernel that is restarted, or a script that is killed, must not leave a training behind that nobody knows of
and that holds its run's lock.
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
    with contextlib.suppress(OSError, AttributeError):  # another C library: it goes on by itself then
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != int(sys.argv[1]):  # it has ended before the line above
        return 75
    from launcher.cli import main as run

    return run(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
