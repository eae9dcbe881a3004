"""The parser of the command line, and the arguments that commands of several kinds share."""

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from launcher.dispatch import resolve
from launcher.options.hints import first_unknown, hint
from launcher.options.values import existing, existing_folder, language, new_path, path


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line and exit code 2."""

    def error(self, message: str) -> NoReturn:
        """Say in one line what is wrong, and what may have been meant, and leave with exit code 2."""
        unknown = first_unknown(message)
        meant = hint(self, unknown) if unknown is not None else ""
        said = "; ".join(filter(None, [" ".join(message.split()), meant]))
        self.exit(2, f"zeromt: error: {said}; see `{self.prog} --help`\n")

    def format_help(self) -> str:
        """The options, and behind them the fields of the configuration where the command takes such."""
        text = super().format_help()
        if not any(action.dest == "overrides" for action in self._actions):
            return text
        fields = resolve("configs.reading.meanings:text")()
        return (
            f"{text}\nsettings (section.key=value); `zeromt help optimizer` shows those of a section alone:\n{fields}\n"
        )

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        """Take `--option=--` for what it says: argparse of Python 3.11 makes an empty list of it, unchecked."""
        if action.option_strings and arg_strings == ["--"]:
            value = self._get_value(action, "--")
            self._check_value(action, value)
            return value if action.nargs is None else [value]
        return super()._get_values(action, arg_strings)


def read_arguments(parser: Parser, argv: Sequence[str]) -> dict[str, Any]:
    """The arguments by name. Intermixed: overrides may stand before, between and behind options.

    Raises:
        SystemExit: after help (0) or a usage error (2).
    """
    arguments = vars(parser.parse_intermixed_args(argv))
    if (device := arguments.pop("device", None)) is not None:
        arguments["overrides"] = [*arguments["overrides"], f"engine.device={device}"]
    return arguments


def add_run_folder(parser: Parser) -> None:
    """RUN, a folder."""
    parser.add_argument("run", metavar="RUN", type=existing_folder, help="a run's folder")


def add_run(parser: Parser) -> None:
    """RUN, a folder or a checkpoint."""
    parser.add_argument("run", metavar="RUN", type=existing, help="a run's folder, or one checkpoint in it")


def add_new_folder(parser: Parser) -> None:
    """Where something is written that was not there."""
    parser.add_argument("-o", "--output", metavar="DIR", type=new_path, required=True, help="a new or an empty folder")


def add_raw_weights(parser: Parser) -> None:
    """Which weights of a checkpoint."""
    parser.add_argument(
        "--raw-weights",
        action="store_true",
        help="use the weights of the last update, not their moving average (training.ema_decay)",
    )


def add_plugins(parser: Parser) -> None:
    """Files with components of somebody else's."""
    parser.add_argument(
        "--plugins",
        metavar="FILE",
        type=path,
        action="append",
        default=[],
        help="a Python file with components (filters, schedules, ...), as `plugins` in CONFIG names them; may be "
        "repeated. A run's own configuration runs no file: name here what it was made with",
    )


def add_languages(parser: Parser) -> None:
    """Of models with tags on both sides."""
    for side in ("source", "target"):
        parser.add_argument(
            f"--{side}-language",
            metavar="L",
            type=language,
            help="such as eng_Latn, for models with language tags on both sides, as NLLB (default: the run's)",
        )
