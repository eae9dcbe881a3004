"""torchrun as the launcher starts it, a program of its own: without the forty lines that it prints when ranks fail.

The ranks and the launcher say why.
"""

import logging
import os
import sys

from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.run import main

if __name__ == "__main__":
    if "LOGLEVEL" not in os.environ:  # torchrun's own switch
        logging.disable(logging.ERROR)
    try:
        main()
    except (ChildFailedError, SignalException):
        sys.exit(1)
