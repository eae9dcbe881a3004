"""The command `zeromt doctor` and its arguments."""

from launcher.options.parser import Command, Parser, add_plugins
from launcher.options.values import path


def add_doctor(parser: Parser) -> None:
    """Arguments of `zeromt doctor`."""
    parser.add_argument(
        "config",
        metavar="CONFIG",
        nargs="?",
        type=path,
        help="a YAML file, or the name of an example run, to check as well",
    )
    parser.add_argument(
        "overrides",
        metavar="section.key=value",
        nargs="*",
        default=[],
        help="settings that replace those of CONFIG",
    )
    add_plugins(parser)
    parser.add_argument("--json", dest="as_json", action="store_true", help="print a JSON list instead of lines")


COMMANDS = {
    "doctor": Command(
        summary="find what on this machine would fail a run or falsify it, and what to do about it",
        usage="[CONFIG] [--json] [section.key=value ...]",
        add_arguments=add_doctor,
        target="zeromt.doctor.command:run",
    ),
}
