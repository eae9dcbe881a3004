"""Parsers and checks for the values of options, for argparse's `type`."""

import argparse
import math
import os
import stat
from collections.abc import Callable
from pathlib import Path

from configs.process.astray import no_folder, nothing


def one_of(*names: str) -> Callable[[str], str]:
    """A parser for one of these words."""

    def parse(text: str) -> str:
        if text not in names:
            raise argparse.ArgumentTypeError(f"{text!r}; allowed is {' or '.join(names)}")
        return text

    return parse


def language(text: str) -> str:
    """Parse a language code, or the text between the brackets of a model's language tag."""
    if not text or any(c.isspace() or c in "<>" for c in text):
        raise argparse.ArgumentTypeError(f"{text!r}; allowed is the code of a language, such as fr or fra_Latn")
    return text


def whole(low: int, high: int) -> Callable[[str], int]:
    """A parser for a whole number from `low` to `high`."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text!r}; allowed is a whole number from {low} to {high}")
        return value

    return parse


def part(text: str) -> tuple[int, int]:
    """Parse I/N: part I of N of what a command does; or `slurm`, which a task of a job array replaces with its own."""
    if text == "slurm":
        return _task_of_array()
    number, slash, of = text.partition("/")
    if slash and number.isascii() and of.isascii() and number.isdigit() and of.isdigit():
        parsed = int(number), int(of)
        if 1 <= parsed[0] <= parsed[1]:
            return parsed
    raise argparse.ArgumentTypeError(f"{text!r}; allowed is I/N with I from 1 to N, such as 3/16, or slurm")


def _task_of_array() -> tuple[int, int]:
    """Which of how many tasks this is; an array may begin at any number."""
    names = ("SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_MIN", "SLURM_ARRAY_TASK_COUNT")
    try:
        number, first, count = (int(os.environ[name]) for name in names)
    except (KeyError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"'slurm' without {', '.join(names)}; give I/N, or sbatch --array") from error
    return number - first + 1, count


def reset(text: str) -> str:
    """Parse what to start anew; the result is in alphabetical order."""
    parts = text.split(",")
    if not set(parts) <= {"data", "optimizer"} or len(set(parts)) < len(parts):
        raise argparse.ArgumentTypeError(f"{text!r}; allowed is data, optimizer or data,optimizer")
    return ",".join(sorted(parts))


def processes(text: str) -> int | None:
    """Parse a number of processes; None stands for auto."""
    if text == "auto":
        return None
    try:
        return whole(1, 65_536)(text)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{error}, or auto") from error


def number(low: float, high: float = math.inf, *, is_open: bool = False) -> Callable[[str], float]:
    """A parser for a finite number from `low` to `high`; with `is_open`, above `low`."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and low <= value <= high and not (is_open and value == low)):
            begin = f"above {low:g}" if is_open else f"from {low:g}"
            end = f"{' up' if is_open else ''} to {high:g}" if math.isfinite(high) else ""
            raise argparse.ArgumentTypeError(f"{text!r}; allowed is a finite number {begin}{end}")
        return value

    return parse


def path(text: str) -> str:
    """Parse a path; `~` is the home folder."""
    from configs.errors import UserError  # imported late, so that usage errors and help are fast
    from configs.process.files import expand

    if not text:
        raise argparse.ArgumentTypeError("'': empty; give a path")
    try:
        return expand(text)
    except UserError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def new_path(text: str) -> str:
    """Parse a path to be written. It must be UTF-8, because libraries and JSON files will contain it."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: is not UTF-8; give a name that is") from error
    return path(text)


def mode_of(name: str) -> int | None:
    """The mode (`st_mode`) of the file or folder at a path; None if there is none."""
    from configs.errors import UserError
    from configs.process.files import status_of

    try:
        status = status_of(name)
    except UserError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return None if status is None else status.st_mode


def existing_or_url(text: str) -> str:
    """Parse the path of an existing file or folder, or a URL."""
    return text if "://" in text else existing(text)


def existing(text: str) -> str:
    """Parse the path of an existing file or folder."""
    name = path(text)
    if mode_of(name) is None:
        raise argparse.ArgumentTypeError(nothing(text, "file or folder", "give one that exists"))
    return name


def existing_folder(text: str) -> str:
    """Parse the path of a run's folder."""
    name = path(text)
    if (mode := mode_of(name)) is None or not stat.S_ISDIR(mode):
        raise argparse.ArgumentTypeError(no_folder(text, "give a run's folder"))
    return name


def dataset_folder(text: str) -> str:
    """Parse the path of a dataset's folder."""
    name = path(text)
    if (mode := mode_of(name)) is None or not stat.S_ISDIR(mode):
        raise argparse.ArgumentTypeError(no_folder(text, "give a folder made by zeromt prepare", is_run=False))
    return name


def input_file(text: str) -> str | None:
    """Parse the path of a file to read, or of a dataset; `-` gives None, which stands for stdin."""
    return None if text == "-" else existing(text)


def existing_file(text: str) -> str:
    """Parse the path of an existing file, which may be a pipe."""
    name = path(text)
    if (mode := mode_of(name)) is None or stat.S_ISDIR(mode):
        raise argparse.ArgumentTypeError(nothing(text, "file", "give a file that exists"))
    return name


def output_file(text: str) -> str | None:
    """Parse the path of a file to write; `-` gives None, which stands for stdout."""
    if text == "-":
        return None
    name = path(text)
    mode, parent = mode_of(name), mode_of(str(Path(name).absolute().parent))
    if (mode is not None and stat.S_ISDIR(mode)) or parent is None or not stat.S_ISDIR(parent):
        raise argparse.ArgumentTypeError(f"{text!r} cannot be written; give a file in a folder that exists")
    return _no_configuration(name)


def _no_configuration(name: str) -> str:
    """The path, unless a configuration is there: nothing that a command writes by itself replaces one."""
    if Path(name).suffix in (".yaml", ".yml") and (mode := mode_of(name)) is not None and stat.S_ISREG(mode):
        raise argparse.ArgumentTypeError(f"{name!r} is there, and a YAML file is not replaced; give another name")
    return name


def output(text: str) -> str | None:
    """Parse the path of a file or a folder to write; `-` gives None, which stands for stdout."""
    return None if text == "-" else _no_configuration(new_path(text))


def other_file(text: str) -> str:
    """Parse the path of a further file to write, which cannot be stdout."""
    name = output_file(text)
    if name is None:
        raise argparse.ArgumentTypeError(f"{text!r} stands for standard output; give a file in a folder that exists")
    return name
