"""The parser of the command line, the arguments that several commands share, and hints for unknown options.

Whoever gives one may have meant a field of the configuration, or another program's option.
"""

import argparse
import difflib
import itertools
from collections.abc import Sequence
from typing import Any, NoReturn

from configs.process.streams import hidden
from launcher.dispatch import resolve
from launcher.options.values import existing, existing_folder, language, new_path, path


class Parser(argparse.ArgumentParser):
    """An argument parser that reports an error in one line and exits with code 2."""

    def error(self, message: str) -> NoReturn:
        """Print one line with the error and a hint, and exit with code 2."""
        line = "; ".join([" ".join(message.split()), *_hints(self, all_unknown(message))])
        self.exit(2, f"zeromt: error: {hidden(line)}; see `{self.prog} --help`\n")

    def format_help(self) -> str:
        """The options, followed by the fields of the configuration if the command accepts settings."""
        text = super().format_help()
        if not any(action.dest == "overrides" or action.metavar == "SETTING" for action in self._actions):
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
    if "cooldown" in arguments and arguments["cooldown"] is None:
        del arguments["cooldown"]  # where it is given, it is replaced by settings before the command is called
    return arguments


def add_run_folder(parser: Parser) -> None:
    """RUN: a run's folder."""
    parser.add_argument("run", metavar="RUN", type=existing_folder, help="a run's folder")


def add_run(parser: Parser, *, is_optional: bool = False) -> None:
    """RUN: a run's folder or a checkpoint."""
    nargs = "?" if is_optional else None
    parser.add_argument("run", metavar="RUN", nargs=nargs, type=existing, help="a run's folder, or a checkpoint in it")


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


_OPTIONS = {
    "--nproc": "gpus gpu num-gpus num-processes nproc-per-node nproc n devices workers world-size",
    "--nnodes --nodes": "num-nodes nodes nnodes",
    "--source --input": "src source-file test-source",
    "--input --source": "input source file",
    "--reference": "ref tgt trg reference-file references",
    "--output": "out output-file hyp",
    "--beam": "beam-size num-beams",
    "--n-best": "nbest num-return-sequences",
    "RUN, which is given without an option": "model checkpoint path",
    "CONFIG, which is given without an option": "config conf config-file",
    "`zeromt log RUN | tail -n N`, since all is printed": "tail lines",
}
"""What to use here, the first of the options that a command has or advice, and other programs' options for it."""
OPTIONS = {word: here for here, words in _OPTIONS.items() for word in words.split()}
_MOST_HINTS = 3
_LOCAL = "to set the number of processes: `zeromt launch local CONFIG --nproc N`"


def hint(parser: argparse.ArgumentParser, unknown: str) -> str:
    """What the user may have meant by an unknown option; empty if there is no guess.

    Args:
        parser: the command's parser.
        unknown: the option, such as `--lr` or `--lr=5e-4`; or an argument that is none.
    """
    options = [option for action in parser._actions for option in action.option_strings]
    if not unknown.startswith("-"):
        if parser.prog.endswith(" status"):
            return "one run at a time; `zeromt status` alone shows all"
        return "give files by --source and --reference" if {"--source", "--reference"} <= {*options} else ""
    name, _, value = unknown.lstrip("-").partition("=")
    named = OPTIONS.get(name.replace("_", "-"), "")
    guesses = [option for option in named.split() if option in options]
    takes_settings = any(action.dest == "overrides" for action in parser._actions)
    meant = _meant(name) if takes_settings and not guesses else None
    if meant is None:
        guesses = guesses or difflib.get_close_matches(f"--{name}", options, n=1, cutoff=0.8)
    if guesses:
        return f"did you mean {guesses[0]}?"
    if "," in named:
        return f"it is {named}"
    if not takes_settings:
        return ""
    if named == "--nproc":
        return _LOCAL
    fields = find_fields(name.replace("-", "_"))
    if not fields and meant is not None and " " in meant:
        return f"here it is {meant}"
    fields = fields or ([meant] if meant is not None else [])
    shown = " or ".join(field if "=" in field else f"{field}={value or '...'}" for field in fields[:3])
    return f"settings are written section.key=value: {shown}" if fields else ""


def _meant(name: str) -> str | None:
    meant: str | None = resolve("configs.other_tools:meant")(name)
    return meant


def find_fields(name: str) -> Sequence[str]:
    """Paths of the fields of the configuration with this path, or else with this name in any section."""
    paths: Sequence[str] = resolve("configs.reading.meanings:paths_of")(name)
    return paths


def all_unknown(message: str) -> list[str]:
    """The unknown options in a message of argparse, as `--option=value` if they have a value, or else the first word.

    It is empty if the message is of something else.
    """
    _, is_there, rest = message.partition("unrecognized arguments: ")
    words = rest.split() if is_there else []
    options = [
        word if "=" in word or after.startswith("-") else f"{word}={after}"
        for word, after in itertools.pairwise([*words, "--"])
        if word.startswith("-")
    ]
    return options or words[:1]


def _hints(parser: argparse.ArgumentParser, unknown: Sequence[str]) -> list[str]:
    """What is meant by the first unknown ones for which there is a guess; named where there are several."""
    guesses = {word.partition("=")[0]: guess for word in unknown if (guess := hint(parser, word))}
    several = list(guesses.items())[:_MOST_HINTS]
    return [guess if len(unknown) == 1 else f"{word}: {guess}" for word, guess in several]
