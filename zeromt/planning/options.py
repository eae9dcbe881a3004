"""The command `zeromt plan` and its arguments. Imports nothing heavy, because `zeromt --help` reads this module too."""

from launcher.options.parser import Command, Parser
from launcher.options.running import add_config
from launcher.options.values import matching, number, whole


def add_plan(parser: Parser) -> None:
    """Arguments of `zeromt plan`."""
    from model.gpus import GPUS  # imported late: `zeromt --help` must work even if another `model` is found first

    add_config(parser)
    parser.add_argument("--nodes", metavar="N", type=whole(1, 65_536), help="number of nodes (default: 1)")
    parser.add_argument(
        "--gpus-per-node", metavar="G", type=whole(1, 1024), help="GPUs per node; each runs one rank (default: 1)"
    )
    parser.add_argument(
        "--gpu",
        metavar="NAME",
        type=str.lower,
        choices=tuple(GPUS),
        help=f"model of the GPU, whose data sheet gives peak, links and memory: {', '.join(GPUS)} (default: a100)",
    )
    parser.add_argument(
        "--gpu-memory",
        metavar="SIZE",
        type=matching(r"[1-9]\d*(\.\d+)?GB", "a number of GB, such as 80GB"),
        help="memory of one GPU, such as 80GB (default: --gpu's)",
    )
    parser.add_argument(
        "--mfu",
        metavar="FRACTION",
        type=number(0, 1, is_open=True),
        help="fraction of the peak that a GPU reaches while it computes: yours to give, for instance a run's `mfu` "
        "(default: 0.2; one H100 reached 0.13 with base, 0.27 with big)",
    )
    parser.add_argument(
        "--length", metavar="N", type=number(1), help="mean tokens of a sentence (default: the dataset's, or 32)"
    )
    parser.add_argument("--json", dest="as_json", action="store_true", help="print one JSON object instead of lines")


COMMANDS = {
    "plan": Command(
        summary="estimate parameters, FLOPs, memory and time of a run on one GPU or a cluster",
        usage="CONFIG [--nodes N --gpus-per-node G] [--gpu NAME] [--gpu-memory 80GB] [--json] [...]",
        add_arguments=add_plan,
        target="zeromt.planning.command:run",
    ),
}
