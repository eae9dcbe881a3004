"""A training rank: `torchrun --nproc-per-node 2 -m trainer CONFIG [--reset WHAT] [--plugins FILE] [key=value ...]`."""

import sys

from configs.process.signals import stop_request
from configs.process.streams import open_standard_streams
from configs.process.with_torch import quick_imports
from trainer.ranks.watchdog import process_watchdog

open_standard_streams()
stop_request()
process_watchdog().start()

with quick_imports():  # after the handlers and the monitor
    from trainer.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
