"""The command `zeromt init` and its arguments."""

from launcher.options.parser import Command, Parser
from launcher.options.values import existing, language, new_path


def add_init(parser: Parser) -> None:
    """Arguments of `zeromt init`."""
    parser.add_argument(
        "corpus",
        metavar="CORPUS",
        nargs="+",
        type=existing,
        help="two files, the source's first, equally many lines; or one TSV of two columns, or one TMX. They may be "
        "compressed",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        type=new_path,
        required=True,
        help="the configuration to write, such as my.yaml; the held-out sets go next to it, into my-data",
    )
    for side in ("source", "target"):
        parser.add_argument(
            f"--{side}-language",
            metavar="L",
            type=language,
            help=f"code of the {side} language, such as en (default: as the names of the files say)",
        )


COMMANDS = {
    "init": Command(
        summary="look at parallel text, hold sentences out, and write a configuration that says why",
        usage="CORPUS [CORPUS] -o FILE [--source-language L] [--target-language L]",
        add_arguments=add_init,
        target="zeromt.init.command:run",
        group="prepare data",
    ),
}
