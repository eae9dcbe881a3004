"""Arguments of `zeromt batch`, `zeromt diff` and `zeromt replay`, which inspect the updates of a run."""

from launcher.options.parser import Parser, add_plugins, add_run_folder
from launcher.options.values import existing_file, existing_folder, whole

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
    parser.add_argument(
        "--at", dest="update", metavar="UPDATE", type=number, required=True, help="first update to replay"
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
