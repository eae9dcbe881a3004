"""A training rank: `torchrun --nproc-per-node 2 -m trainer CONFIG [section.key=value ...]`."""

import sys

from trainer.supervision.signals import stop_request

stop_request()

from trainer.main import main  # noqa: E402 (after the handlers)

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
