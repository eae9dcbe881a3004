"""The commands `zeromt batch`, `inspect` and `report`."""

from launcher.options.parser import Command, Parser, add_plugins, add_run_folder
from launcher.options.values import existing, whole

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


def add_inspect(parser: Parser) -> None:
    """Arguments of `zeromt inspect`."""
    parser.add_argument("path", metavar="PATH", type=_place, help="a dataset (folder or URL), a checkpoint or a run")


def add_report(parser: Parser) -> None:
    """Arguments of `zeromt report`."""
    add_run_folder(parser)
    add_plugins(parser)


def _place(text: str) -> str:
    return text if "://" in text else existing(text)


COMMANDS = {
    "batch": Command(
        summary="print the pairs of an update as text, with their origin and their loss",
        usage="RUN UPDATE [--loss] [--json]",
        add_arguments=add_batch,
        target="zeromt.inspecting.batch:run",
        computes=True,
        group="look into a run",
    ),
    "inspect": Command(
        summary="describe a dataset, a checkpoint or a run, and check whether it is complete",
        usage="PATH",
        add_arguments=add_inspect,
        target="zeromt.inspecting.describe:run",
        group="look into a run",
    ),
    "report": Command(
        summary="write report.md of a run: settings, scores, curves, translations",
        usage="RUN",
        add_arguments=add_report,
        target="zeromt.inspecting.describe:report",
        group="look into a run",
    ),
}
