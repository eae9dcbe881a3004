"""`zeromt launch local` on the command line."""

from launcher.options.command import Command
from launcher.options.parser import Parser
from launcher.options.running import add_array, add_ranks


def add_local(parser: Parser) -> None:
    """Arguments of `zeromt launch local`."""
    add_ranks(parser, in_parts="; with --array, the parts that run at a time (default: 1)")
    add_array(parser)


COMMAND = Command(
    summary="train in several processes on this machine, started by torchrun",
    usage="CONFIG [--nproc N] [--max-restarts R] [--from RUN] [--fresh | --reset WHAT] [section.key=value ...] "
    "| [--nproc N] --array N -- COMMAND ...",
    add_arguments=add_local,
    target="launcher.commands:launch_here",
    computes=True,
    group="train",
)
