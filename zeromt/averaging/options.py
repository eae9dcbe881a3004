"""The command `zeromt average` and its arguments."""

from launcher.options.parser import Command, Parser, add_new_folder, add_plugins, add_raw_weights, add_run_folder
from launcher.options.values import whole


def add_average(parser: Parser) -> None:
    """Arguments of `zeromt average`."""
    add_run_folder(parser)
    group = parser.add_mutually_exclusive_group(required=True)
    for name, which in (
        ("last", "newest K complete checkpoints"),
        ("best", "K checkpoints with the best validation scores"),
    ):
        parser.add_argument(f"--{name}", group=group, metavar="K", type=whole(1, 10_000), help=f"average the {which}")
    add_raw_weights(parser)
    add_plugins(parser)
    add_new_folder(parser)


COMMANDS = {
    "average": Command(
        summary="average the weights of several checkpoints into a new run",
        usage="RUN --last K | --best K -o DIR",
        add_arguments=add_average,
        target="zeromt.averaging.average:run",
        computes=True,
        group="use a model",
    ),
}
