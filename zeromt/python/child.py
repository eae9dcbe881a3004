"""`python -m zeromt.python.child PID COMMAND ...`: a command that saves and stops when the process PID ends.

A restarted notebook kernel, a killed script or a killed launcher of parts must not leave an unknown command behind that
holds its run's lock.
"""

import os
import signal
import sys

from configs.process.kernel import PR_SET_PDEATHSIG, prctl


def main() -> int:
    """Run the command.

    Returns:
        Its exit code.
    """
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != int(sys.argv[1]):  # the process ended before the line above
        return 75
    from zeromt.cli.main import main as run

    return run(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
