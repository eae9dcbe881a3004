"""torchrun as the launcher starts it, a program of its own: without the forty lines that it prints when ranks fail.

The ranks and the launcher say why. Its first argument is a file, which gets how those ranks ended that failed.
"""

import json
import logging
import os
import signal
import sys
from pathlib import Path

from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
from torch.distributed.run import main


def describe_end(failure: ProcessFailure) -> tuple[str, int]:
    """How a rank ended, and when: the second before torchrun saw it, to come before the notes of its victims.

    The process that aborts may be a victim: NCCL aborts when a peer is gone.
    """
    if failure.exitcode >= 0:
        return f"ended with exit code {failure.exitcode}", failure.timestamp
    is_abort = failure.exitcode == -signal.SIGABRT
    return f"was ended by {failure.signal_name()}", failure.timestamp - (not is_abort)


if __name__ == "__main__":
    if "LOGLEVEL" not in os.environ:  # torchrun's own switch
        logging.disable(logging.ERROR)
    file = Path(sys.argv.pop(1))
    try:
        main()
    except SignalException:
        sys.exit(1)
    except ChildFailedError as error:
        file.write_text(json.dumps({rank: describe_end(failure) for rank, failure in error.failures.items()}))
        sys.exit(1)
