"""The command `zeromt pipeline` and its arguments."""

from pathlib import Path

from launcher.options.parser import Command, Parser
from launcher.options.values import path

GRAPH_FILE = ".pipeline/graph.json"
"""In a pipeline's folder: its steps."""


def is_pipeline(folder: str) -> bool:
    """Whether a folder is one in which a pipeline was begun."""
    return (Path(folder) / GRAPH_FILE).is_file()


def add_pipeline(parser: Parser) -> None:
    """Arguments of `zeromt pipeline`."""
    parser.add_argument(
        "pipeline",
        metavar="PIPELINE",
        type=path,
        help="a pipeline's YAML file, or the name of a shipped recipe",
    )
    parser.add_argument(
        "words",
        metavar="STEP",
        nargs="*",
        default=[],
        help="steps that are wanted, with those that they need (default: all); and settings, KEY=VALUE, instead of "
        "the file's, such as name=second",
    )
    parser.add_argument("--dry-run", action="store_true", help="show what would be done, and why; change nothing")


COMMANDS = {
    "pipeline": Command(
        summary="run the steps of a recipe, from raw text to a model, whose results are missing or would be others",
        usage="PIPELINE [STEP ...] [KEY=VALUE ...] [--dry-run]",
        add_arguments=add_pipeline,
        target="zeromt.pipeline.command:run",
        group="train",
    ),
}
