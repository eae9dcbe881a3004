"""`zeromt launch local` on the command line."""

from launcher.options import add_launch_local
from launcher.options.command import Command

COMMAND = Command(
    summary="train in several processes on this machine, started by torchrun",
    usage="CONFIG [--nproc N] [--max-restarts R] [--from RUN] [--fresh | --reset WHAT] [section.key=value ...]",
    add_arguments=add_launch_local,
    target="launcher.commands:launch_here",
    computes=True,
)
