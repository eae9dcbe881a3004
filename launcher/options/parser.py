"""The parser of the command line, and the arguments that several commands share."""

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from configs.process.streams import hidden
from launcher.dispatch import resolve
from launcher.options.hints import first_unknown, hint
from launcher.options.values import existing, existing_folder, language, new_path, path


class Parser(argparse.ArgumentParser):
    """An argument parser that reports an error in one line and exits with code 2."""

    def error(self, message: str) -> NoReturn:
        """Print one line with the error and a hint, and exit with code 2."""
        unknown = first_unknown(message)
        meant = hint(self, unknown) if unknown is not None else ""
        line = "; ".join(filter(None, [" ".join(message.split()), meant]))
        self.exit(2, f"zeromt: error: {hidden(line)}; see `{self.prog} --help`\n")

    def format_help(self) -> str:
        """The options, followed by the fields of the configuration if the command accepts settings."""
        text = super().format_help()
        if not any(action.dest == "overrides" for action in self._actions):
            return text
        fields = resolve("configs.reading.meanings:text")()
        return (
            f"{text}\nsettings (section.key=value); `zeromt help optimizer` lists only those of a section:\n{fields}\n"
        )

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        """Take `--` in `--option=--` as the value: Python 3.11's argparse turns it into an empty list, unchecked."""
        if action.option_strings and arg_strings == ["--"]:
            value = self._get_value(action, "--")
            self._check_value(action, value)
            return value if action.nargs is None else [value]
        return super()._get_values(action, arg_strings)


def read_arguments(parser: Parser, argv: Sequence[str]) -> dict[str, Any]:
    """Parse the arguments into a dictionary. Settings may come before, between and after options.

    Raises:
        SystemExit: 0 after printing help, 2 after printing a usage error.
    """
    arguments = vars(parser.parse_intermixed_args(argv))
    if (device := arguments.pop("device", None)) is not None:
        arguments["overrides"] = [*arguments["overrides"], f"engine.device={device}"]
    return arguments


def add_run_folder(parser: Parser) -> None:
    """RUN: a run's folder."""
    parser.add_argument("run", metavar="RUN", type=existing_folder, help="a run's folder")


def add_allow_paths(parser: Parser) -> None:
    """`--allow-paths`: whether a stranger's run may name what is read."""
    parser.add_argument(
        "--allow-paths",
        action="store_true",
        help="read the datasets and sets that a run names, though you have not trained it on this machine",
    )


def add_run(parser: Parser) -> None:
    """RUN: a run's folder or a checkpoint."""
    parser.add_argument("run", metavar="RUN", type=existing, help="a run's folder, or one checkpoint in it")


def add_new_folder(parser: Parser) -> None:
    """`--output`: a folder to write."""
    parser.add_argument(
        "-o", "--output", metavar="DIR", type=new_path, required=True, help="folder to write; must be new or empty"
    )


def add_raw_weights(parser: Parser) -> None:
    """`--raw-weights`: which weights of a checkpoint to use."""
    parser.add_argument(
        "--raw-weights",
        action="store_true",
        help="use the weights of the last update, not their moving average (training.ema_decay)",
    )


def add_plugins(parser: Parser) -> None:
    """`--plugins`: files with the user's components."""
    parser.add_argument(
        "--plugins",
        metavar="FILE",
        type=path,
        action="append",
        default=[],
        help="a Python file with components (filters, schedules, ...), as in CONFIG's `plugins`; may be repeated. "
        "Plugins in the saved configuration of a run are not run: name them here",
    )


def add_languages(parser: Parser) -> None:
    """`--source-language` and `--target-language`."""
    for side in ("source", "target"):
        parser.add_argument(
            f"--{side}-language",
            metavar="L",
            type=language,
            help=f"{side} language, such as eng_Latn, for models with tags on both sides such as NLLB (default: the "
            "run's)",
        )
