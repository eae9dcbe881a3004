"""A training rank: `torchrun --nproc-per-node 2 -m trainer CONFIG [--reset WHAT] [--plugins FILE] [key=value ...]`."""

import sys

from configs.process.signals import stop_request
from configs.process.streams import open_standard_streams
from configs.process.with_torch import quick_imports

open_standard_streams()
stop_request()

with quick_imports():  # after the handlers
    from trainer.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
