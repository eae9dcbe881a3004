"""The command `zeromt trace` and its arguments."""

import argparse

from launcher.options.command import Command
from launcher.options.parser import Parser, add_plugins
from launcher.options.values import existing_folder, existing_or_url

_MOST_DIGITS = 12


def add_trace(parser: Parser) -> None:
    """Arguments of `zeromt trace`."""
    parser.add_argument(
        "corpus",
        metavar="CORPUS",
        type=existing_or_url,
        help="a prepared dataset, the folder of `zeromt translate --part`, or the file that --merge wrote",
    )
    parser.add_argument(
        "line",
        metavar="LINE",
        type=_line,
        help="number of a pair, from 0, or of a line of the merged file, from 1; any other text is looked for on "
        "either side",
    )
    parser.add_argument(
        "--translated",
        metavar="OUT",
        type=existing_folder,
        action="append",
        default=[],
        help="a folder of `zeromt translate --part` whose --merge wrote elsewhere (--to): it has the candidates; may "
        "be repeated",
    )
    parser.add_argument("--json", dest="as_json", action="store_true", help="print a JSON object per line found")
    add_plugins(parser)


def _line(text: str) -> int | str:
    """Parse a line's number, or a text."""
    if text.isdecimal() and len(text) <= _MOST_DIGITS:
        return int(text)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: is not UTF-8; give text that is") from error
    if not text.strip():
        raise argparse.ArgumentTypeError(f"{text!r}: is blank; give a number or a text")
    return text


COMMANDS = {
    "trace": Command(
        summary="say where a line of a corpus comes from: files, filters, scores, engine, candidates that lost",
        usage="CORPUS LINE|TEXT [--translated OUT ...] [--json]",
        add_arguments=add_trace,
        target="zeromt.tracing.command:run",
        group="prepare data",
    ),
}
