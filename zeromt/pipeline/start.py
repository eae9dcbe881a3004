"""`python -m zeromt.pipeline.start PARENT LOCK LOG STDOUT COMMAND ...`: what each step on this machine begins as.

The step's lock stays with the process that the command becomes: a driver that is started again waits for a step of the
last one to end, such as a run that saves. The kernel asks the step to stop when its driver ends, even by SIGKILL.
"""

import fcntl
import os
import signal
import sys
from pathlib import Path

from configs.process.files import inside
from configs.process.signals import PR_SET_PDEATHSIG, prctl

CANNOT_START = 127
"""The exit code of a command that cannot be started, as a shell's."""


def main() -> int:
    """Become the command.

    Returns:
        75 if the driver is gone; 127 if the command cannot be started.
    """
    parent, lock, log, stdout, *command = sys.argv[1:]
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    held = inside.opened(Path(lock), "ab")
    fcntl.flock(held, fcntl.LOCK_EX)
    os.set_inheritable(held.fileno(), True)
    if os.getppid() != int(parent):  # it ended before the kernel knew whom to ask
        return 75
    with inside.opened(Path(log), "ab") as file:
        os.dup2(file.fileno(), 2)
    if stdout:
        with inside.opened(Path(stdout), "wb") as file:
            os.dup2(file.fileno(), 1)
    else:
        os.dup2(2, 1)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"zeromt: error: {command[0]!r} cannot be started: {error.strerror}", file=sys.stderr)
        return CANNOT_START


if __name__ == "__main__":
    sys.exit(main())
