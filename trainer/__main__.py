"""A training rank: `torchrun --nproc-per-node 2 -m trainer CONFIG [--reset WHAT] [section.key=value ...]`."""

import sys

from trainer.supervision.signals import stop_request
from trainer.supervision.watchdog import process_watchdog

stop_request()
process_watchdog().start()

from trainer.main import main  # noqa: E402 (after the handlers and the monitor)

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
