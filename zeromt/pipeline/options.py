"""The command `zeromt pipeline` and its arguments."""

from launcher.options.parser import Command, Parser
from launcher.options.values import path

GRAPH_FILE = ".pipeline/graph.json"
"""In a pipeline's folder: its steps."""
STATUS = (GRAPH_FILE, "zeromt.pipeline.status:status")
"""What `zeromt status` calls for a folder with this file."""


def add_pipeline(parser: Parser) -> None:
    """Arguments of `zeromt pipeline`."""
    parser.add_argument(
        "pipeline",
        metavar="PIPELINE",
        type=path,
        help="a pipeline's YAML file, or the name of a shipped recipe",
    )
    parser.add_argument(
        "settings",
        metavar="KEY=VALUE",
        nargs="*",
        default=[],
        help="settings that replace those of the file, such as name=second",
    )
    parser.add_argument("--dry-run", action="store_true", help="show what would be done, and why; change nothing")


COMMANDS = {
    "pipeline": Command(
        summary="run the steps of a recipe, from raw text to a model, whose results are missing or would be others",
        usage="PIPELINE [KEY=VALUE ...] [--dry-run]",
        add_arguments=add_pipeline,
        target="zeromt.pipeline.command:run",
        group="train",
    ),
}
