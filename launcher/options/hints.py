"""Hints for unknown options: the user may have meant a field of the configuration, or another program's option."""

import argparse
import difflib
import itertools
from collections.abc import Sequence

from launcher.dispatch import resolve

OTHER_PROGRAMS_OPTIONS = {
    "gpus": "--nproc",
    "num-gpus": "--nproc",
    "num-processes": "--nproc",
    "nproc-per-node": "--nproc",
    "devices": "--nproc",
    "num-nodes": "--nnodes",
    "learning-rate": "optimizer.lr",
    "epochs": "training.max_epochs",
    "num-epochs": "training.max_epochs",
    "steps": "training.max_updates",
    "max-steps": "training.max_updates",
    "train-steps": "training.max_updates",
    "batch-size": "stream.target_tokens",
    "warmup-steps": "schedule.warmup_updates",
    "output-dir": "output",
    "save-dir": "output",
    "fp16": "engine.precision",
    "bf16": "engine.precision",
    "resume": "nothing: the same command resumes",
}
"""Options of other programs, and what to use in zeromt: an option, a field, or advice."""


def hint(parser: argparse.ArgumentParser, unknown: str) -> str:
    """What the user may have meant by an unknown option; empty if there is no guess.

    Args:
        parser: the command's parser.
        unknown: the option, such as `--lr` or `--lr=5e-4`.
    """
    name, _, value = unknown.lstrip("-").partition("=")
    options = [option for action in parser._actions for option in action.option_strings]
    meant = OTHER_PROGRAMS_OPTIONS.get(name)
    if meant is None and (near := difflib.get_close_matches(f"--{name}", options, n=1, cutoff=0.75)):
        meant = near[0]
    if meant is not None and meant.startswith("--"):
        if meant in options:
            return f"did you mean {meant}?"
        return "to set the number of processes: `zeromt launch local CONFIG --nproc N`" if meant == "--nproc" else ""
    if not any(action.dest == "overrides" for action in parser._actions):
        return ""
    fields = [meant] if meant is not None else find_fields(name.replace("-", "_"))
    shown = " or ".join(f"{field}={value or '...'}" if " " not in field else field for field in fields[:3])
    return f"settings are written section.key=value: {shown}" if fields else ""


def find_fields(name: str) -> Sequence[str]:
    """Paths of the fields of the configuration with this path, or else with this name in any section."""
    found: Sequence[str] = resolve("configs.reading.meanings:paths_of")(name)
    return found


def first_unknown(message: str) -> str | None:
    """The first unknown option in a message of argparse, as `--option=value` if it has a value; else None."""
    _, is_there, rest = message.partition("unrecognized arguments: ")
    words = rest.split() if is_there else []
    for word, after in itertools.pairwise([*words, "--"]):
        if word.startswith("--"):
            return word if "=" in word or after.startswith("-") else f"{word}={after}"
    return None
