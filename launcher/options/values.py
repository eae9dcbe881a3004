"""Parsers of the values of options, for argparse's `type`; an error names the value and what is allowed."""

import argparse
import contextlib
import math
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any


def matching(pattern: str, allowed: str) -> Callable[[str], str]:
    """A parser of text that matches a regular expression as a whole.

    Args:
        pattern: the expression.
        allowed: the values that it takes, in words.
    """

    def parse(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise argparse.ArgumentTypeError(f"{text!r}; allowed is {allowed}")
        return text

    return parse


language = matching(r"[^\s<>]+", "the code of a language, such as fr or fra_Latn")


def whole(low: int, high: int, **words: Any) -> Callable[[str], Any]:
    """A parser of a whole number from `low` to `high`, or of one of `words`, which gives that word's value."""

    def parse(text: str) -> Any:
        if text in words:
            return words[text]
        with contextlib.suppress(ValueError):
            if low <= (value := int(text)) <= high:
                return value
        allowed = [f"a whole number from {low} to {high}", *words]
        raise argparse.ArgumentTypeError(f"{text!r}; allowed is {' or '.join(allowed)}")

    return parse


processes = whole(1, 65_536, auto=None)


def number(low: float, high: float = math.inf, *, is_open: bool = False) -> Callable[[str], float]:
    """A parser of a finite number from `low` to `high`; with `is_open`, above `low`."""

    def parse(text: str) -> float:
        with contextlib.suppress(ValueError):
            value = float(text)
            if low <= value <= high and math.isfinite(value) and not (is_open and value == low):
                return value
        to = f" up to {high:g}" if math.isfinite(high) else ""
        raise argparse.ArgumentTypeError(
            f"{text!r}; allowed is a finite number {'above' if is_open else 'from'} {low:g}{to}"
        )

    return parse


def part(text: str) -> tuple[int, int]:
    """Parse I/N: part I of N of what a command does; or `slurm`, which a task of a job array replaces with its own."""
    if text == "slurm":
        return _task_of_array()
    if match := re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text):
        number, of = int(match[1]), int(match[2])
        if 1 <= number <= of:
            return number, of
    raise argparse.ArgumentTypeError(f"{text!r}; allowed is I/N with I from 1 to N, such as 3/16, or slurm")


def _task_of_array() -> tuple[int, int]:
    """Which of how many tasks this is; an array may begin at any number."""
    names = ("SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_MIN", "SLURM_ARRAY_TASK_COUNT")
    try:
        number, first, count = (int(os.environ[name]) for name in names)
    except (KeyError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"'slurm' without {', '.join(names)}; give I/N, or sbatch --array") from error
    return number - first + 1, count


def path(text: str) -> str:
    """Parse a path; `~` at its beginning is the home folder."""
    return _path_and_mode(text)[0]


def existing(text: str) -> str:
    """Parse the path of an existing file or folder."""
    name, mode = _path_and_mode(text)
    if not mode:
        raise argparse.ArgumentTypeError(f"{text!r}: no such file or folder; give one that exists")
    return name


def existing_file(text: str) -> str:
    """Parse the path of an existing file, which may be a pipe."""
    name, mode = _path_and_mode(text)
    if not mode or stat.S_ISDIR(mode):
        raise argparse.ArgumentTypeError(f"{text!r}: no such file; give a file that exists")
    return name


def existing_folder(text: str) -> str:
    """Parse the path of an existing folder, a run's in most commands."""
    name, mode = _path_and_mode(text)
    if not stat.S_ISDIR(mode):
        raise argparse.ArgumentTypeError(f"{text!r}: no such folder; give a folder that exists")
    return name


def new_path(text: str) -> str:
    """Parse a path to be written. It must be UTF-8, because libraries and JSON files will contain it."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: is not UTF-8; give a name that is") from error
    return path(text)


def new_file(text: str) -> str:
    """Parse the path of a file to be written: no standard output, and no YAML file, which may be a configuration."""
    name, mode = _path_and_mode(text)
    if text == "-" or stat.S_ISDIR(mode) or not stat.S_ISDIR(_path_and_mode(str(Path(name).absolute().parent))[1]):
        raise argparse.ArgumentTypeError(f"{text!r} cannot be written; give a file in a folder that exists")
    if stat.S_ISREG(mode) and name.endswith((".yaml", ".yml")):
        raise argparse.ArgumentTypeError(f"{text!r} is there, and a YAML file is not replaced; give another name")
    return name


def _path_and_mode(text: str) -> tuple[str, int]:
    """A path without `~`, and the mode (`st_mode`) of what is there; 0 if nothing is."""
    from configs.errors import UserError  # imported late, so that usage errors and help are fast
    from configs.process.files import expand, status_of

    if not text:
        raise argparse.ArgumentTypeError("'': empty; give a path")
    try:
        name = expand(text)
        status = status_of(name)
    except UserError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return name, status.st_mode if status else 0
