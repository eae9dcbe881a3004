"""The arguments of looking into a run."""

from launcher.options.parser import Parser, add_plugins, add_run_folder
from launcher.options.values import existing_folder, whole

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
    parser.add_argument("other", metavar="RUN_B", type=existing_folder, help="another's")
    add_plugins(parser)
