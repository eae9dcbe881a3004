"""A training rank: `torchrun --nproc-per-node 2 -m trainer CONFIG [section.key=value ...]`."""

import sys

from trainer.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
