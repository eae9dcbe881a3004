"""The arguments of looking into a run."""

from launcher.options.parser import Parser, add_plugins, add_run_folder
from launcher.options.values import existing_file, existing_folder, whole

MOST_UPDATES = 10**12


def add_batch(parser: Parser) -> None:
    """Arguments of `zeromt batch`."""
    add_run_folder(parser)
    parser.add_argument("update", metavar="UPDATE", type=whole(1, MOST_UPDATES), help="number of the update, from 1")
    parser.add_argument(
        "--loss", action="store_true", help="each pair's loss under the newest checkpoint before the update"
    )
    parser.add_argument("--json", dest="as_json", action="store_true", help="one JSON object a pair")
    add_plugins(parser)


def add_diff(parser: Parser) -> None:
    """Arguments of `zeromt diff`."""
    parser.add_argument("run", metavar="RUN_A", type=existing_folder, help="a run's folder")
    parser.add_argument("other", metavar="RUN_B", type=existing_folder, help="another run's folder")
    add_plugins(parser)


def add_replay(parser: Parser) -> None:
    """Arguments of `zeromt replay`."""
    add_run_folder(parser)
    number = whole(1, MOST_UPDATES)
    parser.add_argument(
        "--at", dest="update", metavar="UPDATE", type=number, required=True, help="the update that is looked at"
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
        "--without-dataset", metavar="D", action="append", default=[], help="a dataset to leave out, by its name"
    )
    parser.add_argument(
        "--without-pairs", metavar="FILE", type=existing_file, help="pairs to leave out: a number first on each line"
    )
    parser.add_argument("--blame", action="store_true", help="find the dataset, or the block, behind a spike at UPDATE")
    add_plugins(parser)
