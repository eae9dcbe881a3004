"""Hints for unknown options: the user may have meant a field of the configuration, or another program's option."""

import argparse
import difflib
import itertools
from collections.abc import Sequence
from pathlib import Path

from launcher.dispatch import resolve

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
}
"""What to use here, the first of the options that a command has or advice, and other programs' options for it."""
OPTIONS = {word: here for here, words in _OPTIONS.items() for word in words.split()}
_LOCAL = "to set the number of processes: `zeromt launch local CONFIG --nproc N`"


def hint(parser: argparse.ArgumentParser, unknown: str) -> str:
    """What the user may have meant by an unknown option; empty if there is no guess.

    Args:
        parser: the command's parser.
        unknown: the option, such as `--lr` or `--lr=5e-4`; or an argument that is none.
    """
    options = [option for action in parser._actions for option in action.option_strings]
    if not unknown.startswith("-"):
        return _of_text(unknown, options)
    name, _, value = unknown.lstrip("-").partition("=")
    named = OPTIONS.get(name.replace("_", "-"), "")
    guesses = [option for option in named.split() if option in options]
    takes_settings = any(action.dest == "overrides" for action in parser._actions)
    meant = _meant(name) if takes_settings and not guesses else None
    if meant is None:
        guesses = guesses or difflib.get_close_matches(f"--{name}", options, n=1, cutoff=0.75)
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


def _of_text(text: str, options: Sequence[str]) -> str:
    """Text where there is only RUN: to be translated, or a file of it."""
    if "--input" not in options:
        return ""
    return f"for a file: -i {text}" if Path(text).is_file() else "text comes from stdin, or from a file: -i FILE"


def _meant(name: str) -> str | None:
    meant: str | None = resolve("configs.other_tools:meant")(name)
    return meant


def find_fields(name: str) -> Sequence[str]:
    """Paths of the fields of the configuration with this path, or else with this name in any section."""
    paths: Sequence[str] = resolve("configs.reading.meanings:paths_of")(name)
    return paths


def first_unknown(message: str) -> str | None:
    """The first unknown option in a message of argparse, as `--option=value` if it has a value, or else the first word.

    None if the message is of something else.
    """
    _, is_there, rest = message.partition("unrecognized arguments: ")
    words = rest.split() if is_there else []
    for word, after in itertools.pairwise([*words, "--"]):
        if word.startswith("-"):
            return word if "=" in word or after.startswith("-") else f"{word}={after}"
    return words[0] if words else None
