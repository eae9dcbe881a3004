"""The commands `zeromt batch`, `diff` and `replay`, which inspect the updates of a run, and `inspect`."""

from launcher.options.command import Command
from launcher.options.parser import Parser, add_plugins, add_run_folder
from launcher.options.values import existing_file, existing_folder, existing_or_url, whole

MAX_UPDATES = 10**12


def add_batch(parser: Parser) -> None:
    """Arguments of `zeromt batch`."""
    add_run_folder(parser)
    parser.add_argument("update", metavar="UPDATE", type=whole(1, MAX_UPDATES), help="number of the update, from 1")
    parser.add_argument(
        "--loss",
        action="store_true",
        help="print each pair's loss too, computed with the newest checkpoint before the update",
    )
    parser.add_argument("--json", dest="as_json", action="store_true", help="print one JSON object per pair")
    add_plugins(parser)


def add_diff(parser: Parser) -> None:
    """Arguments of `zeromt diff`."""
    parser.add_argument("run", metavar="RUN_A", type=existing_folder, help="a run's folder")
    parser.add_argument("other", metavar="RUN_B", type=existing_folder, help="another run's folder")
    add_plugins(parser)


def add_replay(parser: Parser) -> None:
    """Arguments of `zeromt replay`."""
    add_run_folder(parser)
    number = whole(1, MAX_UPDATES)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--at", dest="update", metavar="UPDATE", type=number, help="first update to replay")
    what.add_argument(
        "--spikes",
        metavar="N",
        nargs="?",
        const=10,
        type=whole(1, 1_000_000),
        help="replay nothing: list the N updates whose loss is farthest above the median before them, as "
        "stability.spike_window has it, with how to look at each (default: 10)",
    )
    parser.add_argument(
        "--updates",
        dest="num_updates",
        metavar="N",
        type=whole(1, 1_000_000),
        default=1,
        help="number of updates to replay, from UPDATE on (default: 1)",
    )
    parser.add_argument(
        "--without-dataset",
        metavar="D",
        action="append",
        default=[],
        help="name of a dataset to leave out; may be repeated",
    )
    parser.add_argument(
        "--without-pairs",
        metavar="FILE",
        type=existing_file,
        help="file of pairs to leave out: each line begins with the number of a pair",
    )
    parser.add_argument("--blame", action="store_true", help="find the dataset, or the block, behind a spike at UPDATE")
    add_plugins(parser)


def add_inspect(parser: Parser) -> None:
    """Arguments of `zeromt inspect`."""
    parser.add_argument(
        "path", metavar="PATH", type=existing_or_url, help="a dataset (folder or URL), a checkpoint or a run"
    )
    for name, which in (("worst", "lowest"), ("best", "highest")):
        parser.add_argument(
            f"--{name}",
            metavar=("SCORE", "N"),
            nargs=2,
            help=f"print the N pairs of a dataset whose score is the {which}, with their places, and nothing else",
        )


COMMANDS = {
    "batch": Command(
        summary="print the pairs of an update as text, with their origin and their loss",
        usage="RUN UPDATE [--loss] [--json]",
        add_arguments=add_batch,
        target="zeromt.inspecting.batch:run",
        computes=True,
        group="look into a run",
    ),
    "diff": Command(
        summary="find the first update at which two runs differ, and what differs there",
        usage="RUN_A RUN_B",
        add_arguments=add_diff,
        target="zeromt.inspecting.diff:run",
        computes=True,
        group="look into a run",
    ),
    "replay": Command(
        summary="repeat updates of a run without some pairs, list its loss spikes, or find the cause of one",
        usage="RUN --at UPDATE [--updates N] [--without-dataset D ... | --without-pairs FILE | --blame] | "
        "RUN --spikes [N]",
        add_arguments=add_replay,
        target="zeromt.inspecting.replay:run",
        computes=True,
        group="look into a run",
    ),
    "inspect": Command(
        summary="describe a dataset, a checkpoint or a run, and check whether it is complete",
        usage="PATH [--worst SCORE N | --best SCORE N]",
        add_arguments=add_inspect,
        target="zeromt.inspecting.describe:run",
        group="look into a run",
    ),
}
