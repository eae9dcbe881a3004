"""What somebody may have meant who typed what there is not: a field as an option, another launcher's option."""

import argparse
import difflib
import itertools
from collections.abc import Sequence

from launcher.dispatch import resolve

ELSEWHERE = {
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
"""Options of other programs, and what says it here: an option, or a field."""


def hint(parser: argparse.ArgumentParser, unknown: str) -> str:
    """What to do about an option that the parser does not know; empty where nothing is known.

    Args:
        parser: of the command.
        unknown: such as `--lr` or `--lr=5e-4`.
    """
    name, _, value = unknown.lstrip("-").partition("=")
    options = [option for action in parser._actions for option in action.option_strings]
    meant = ELSEWHERE.get(name)
    if meant is None and (near := difflib.get_close_matches(f"--{name}", options, n=1, cutoff=0.75)):
        meant = near[0]
    if meant is not None and meant.startswith("--"):
        if meant in options:
            return f"did you mean {meant}?"
        return "processes are counted by `zeromt launch local CONFIG --nproc N`" if meant == "--nproc" else ""
    if not any(action.dest == "overrides" for action in parser._actions):
        return ""
    fields = [meant] if meant is not None else find_fields(name.replace("-", "_"))
    shown = " or ".join(f"{field}={value or '...'}" if " " not in field else field for field in fields[:3])
    return f"settings are written section.key=value: {shown}" if fields else ""


def find_fields(name: str) -> Sequence[str]:
    """Fields of the configuration with that path, or of that name in any section."""
    found: Sequence[str] = resolve("configs.reading.meanings:paths_of")(name)
    return found


def first_unknown(message: str) -> str | None:
    """The first option that argparse's message names as unknown, with its value behind `=` where it has one."""
    _, is_there, rest = message.partition("unrecognized arguments: ")
    words = rest.split() if is_there else []
    for word, after in itertools.pairwise([*words, "--"]):
        if word.startswith("--"):
            return word if "=" in word or after.startswith("-") else f"{word}={after}"
    return None
