"""`python -m launcher.slurm.decide`, by which batch scripts of before call `launcher.clusters.slurm.decide`."""

import sys

from launcher.clusters.slurm.decide import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
