"""`zeromt completion`: commands, options, their choices, and files, by shtab."""

import shtab

from launcher.options.parser import Parser
from zeromt.cli.core import commands


def completion(*, shell: str) -> int:
    """Print the script of a shell."""
    root = Parser(prog="zeromt")
    below = {"": root.add_subparsers()}
    for name, command in commands().items():
        group, _, own = name.rpartition(" ")
        if group not in below:
            below[group] = below[""].add_parser(group, help=f"{group} ...").add_subparsers()
        parser = below[group].add_parser(own, help=command.summary)
        command.add_arguments(parser)
        for action in parser.arguments:
            if action.nargs != 0 and action.choices is None:
                action.complete = shtab.FILE  # type: ignore[attr-defined]
    print(shtab.complete(root, shell))
    return 0
