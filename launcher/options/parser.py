"""The parser of the command line, the arguments that several folders share, and how a command is described.

It imports nothing heavy, because `zeromt --help` lists all commands.
"""

import argparse
import difflib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

from configs.process.streams import hidden
from launcher import resolve
from launcher.options.values import existing, existing_folder, language, new_path, path


class Parser(argparse.ArgumentParser):
    """An argument parser that reports an error in one line and exits with code 2.

    Attributes:
        arguments: all that were added, for hints, completion and the reference.
    """

    def __init__(self, **options: Any) -> None:
        self.arguments: list[argparse.Action] = []
        super().__init__(allow_abbrev=False, **options)

    def add_argument(self, *names: str, group: Any = None, **options: Any) -> argparse.Action:
        """Add an argument, to a group of the parser's if one is given; see argparse."""
        add = super().add_argument if group is None else group.add_argument
        action: argparse.Action = add(*names, **options)
        self.arguments.append(action)
        return action

    def error(self, message: str) -> NoReturn:
        """Print one line with the error, and exit with code 2."""
        line = hidden(" ".join(message.split()))
        self.exit(2, f"zeromt: error: {line}{self._hint(message)}; see `{self.prog} --help`\n")

    def format_help(self) -> str:
        """The options, followed by the fields of the configuration if the command accepts settings."""
        text = super().format_help()
        if self._takes_settings():
            fields = resolve("configs.reading.meanings:text")()
            text += f"\nsettings (section.key=value); `zeromt help optimizer` lists a section's alone:\n{fields}\n"
        return text

    def _takes_settings(self) -> bool:
        return any(argument.dest == "overrides" for argument in self.arguments)

    def _hint(self, message: str) -> str:
        """What the first unrecognized option may have meant: another option, or a field of the configuration."""
        unknown = re.search(r"unrecognized arguments: --([^\s=]+)", message)
        if unknown is None:
            return ""
        options = [option for argument in self.arguments for option in argument.option_strings]
        if near := difflib.get_close_matches(f"--{unknown[1]}", options, n=1, cutoff=0.75):
            return f"; did you mean {near[0]}?"
        paths_of = resolve("configs.reading.meanings:paths_of")
        fields = paths_of(unknown[1].replace("-", "_"))[:3] if self._takes_settings() else []
        return f"; settings are written section.key=value: {'=... or '.join(fields)}=..." if fields else ""


def read_arguments(parser: Parser, argv: Sequence[str]) -> dict[str, Any]:
    """Parse the arguments into a dictionary. Settings may come before, between and after options.

    Raises:
        SystemExit: 0 after printing help, 2 after printing a usage error.
    """
    words = parser.get_default("words")  # of another command, behind `--`
    if words is not None and "--" in argv:
        where = list(argv).index("--")
        argv, words = argv[:where], argv[where + 1 :]
    for word in argv:
        if value := re.fullmatch(r"(--[a-z-]+=|-[a-z])--", word):  # argparse of Python 3.11 takes it for no value
            parser.error(f"argument {value[1].removesuffix('=')}: '--'; give another value")
    arguments = vars(parser.parse_intermixed_args(argv))
    if words:
        arguments["words"] = words
    if (device := arguments.pop("device", None)) is not None:
        arguments["overrides"] = [*arguments["overrides"], f"engine.device={device}"]
    return arguments


def add_run_folder(parser: Parser) -> None:
    """RUN: a run's folder."""
    parser.add_argument("run", metavar="RUN", type=existing_folder, help="a run's folder")


def add_run(parser: Parser) -> None:
    """RUN: a run's folder or a checkpoint."""
    parser.add_argument("run", metavar="RUN", type=existing, help="a run's folder, or a checkpoint in it")


def add_new_folder(parser: Parser) -> None:
    """`--output`: a folder to write."""
    parser.add_argument(
        "-o", "--output", metavar="DIR", type=new_path, required=True, help="folder to write; must be new or empty"
    )
    add_replace(parser, "the folder")


def add_replace(parser: Parser, what: str) -> None:
    """`--replace`: begin anew, and delete nothing."""
    parser.add_argument(
        "--replace", action="store_true", help=f"rename {what} that is there to NAME.replaced-DATE, and begin anew"
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


Group = Literal["prepare data", "train", "clusters", "look into a run", "use a model", "tools"]
"""The groups of commands, in their order."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Command:
    """A command: summary, arguments, and the `module:function` that is called with the arguments by name."""

    summary: str
    usage: str
    add_arguments: Callable[[Parser], None]
    target: str
    computes: bool = False
    """Whether it computes, so that the environment variables for threads and devices are checked first."""
    group: Group = "tools"
    """Under which `zeromt help` lists it."""
