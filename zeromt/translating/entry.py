"""What `zeromt translate` calls: for people's lines `command.py`, for a corpus in parts `corpus/`."""

import argparse
import contextlib
import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from configs.errors import UserError
from launcher import resolve
from launcher.options.parser import Parser
from launcher.options.values import new_file

_OF_CORPUS: dict[str, Any] = {
    "input_list": None,
    "engine": None,
    "chunk_lines": 2048,
    "choose": "best",
    "to": None,
}
"""Options of a corpus, and their defaults."""
_OF_LINES: dict[str, Any] = {
    "n_best": 1,
    "score": False,
    "target": None,
    "prefix": None,
}
"""Options of single lines, and their defaults."""


_SETTING = re.compile(r"([a-z][a-z_0-9.-]*)=\S*")
"""`beam=5`, as fields are set for other commands."""


def run(*, part: tuple[int, int] | None, merge: bool, sentences: Sequence[str], **arguments: Any) -> int:
    """Translate sentences, or lines, or a part of a corpus, or merge its parts.

    Raises:
        UserError: an option does not go with the others.
    """
    if sentences and (arguments["input"] or part is not None or merge):
        raise UserError("SENTENCE: given with --input, --part or --merge; give one of them")
    for sentence in sentences:
        with contextlib.suppress(OSError, ValueError):  # a name that is too long for one
            if Path(sentence).is_file():
                raise UserError(f"SENTENCE: {sentence} is a file; -i {sentence} translates its lines")
        if (setting := _SETTING.fullmatch(sentence)) and ("." in setting[1] or _is_option(setting[1])):
            advice = f"give --{sentence.replace('=', ' ')}"
            advice = "a run's fields cannot be set here" if "." in setting[1] else advice
            raise UserError(f"SENTENCE: {sentence!r} is a setting, and no sentence; {advice}")
    if part is not None or merge:
        for name, default in _OF_LINES.items():
            if arguments.pop(name) != default:
                raise UserError(f"{_option(name)}: not with --part and --merge; leave it out")
        return int(resolve("zeromt.translating.corpus.command:run")(part=part, **arguments))
    for name, default in _OF_CORPUS.items():
        if arguments.pop(name) != default:
            raise UserError(f"{_option(name)}: without --part and --merge; give one of them")
    if arguments["run"] is None:
        raise UserError("RUN: none given; give a run's folder, or --engine FILE with --part")
    inputs = arguments.pop("input") or [None]
    if len(inputs) > 1:
        raise UserError(f"--input: {len(inputs)} files; several are translated with --part and --merge")
    if (output := arguments["output"]) is not None:
        try:
            new_file(output)
        except argparse.ArgumentTypeError as error:
            raise UserError(f"--output: {error}") from error
    with _as_file(sentences) if sentences else contextlib.nullcontext(inputs[0]) as input_:
        return int(resolve("zeromt.translating.command:run")(input=input_, **arguments))


def _is_option(name: str) -> bool:
    from zeromt.translating.options import add_translate  # imported late, because it imports what lists commands

    parser = Parser()
    add_translate(parser)
    return any(_option(name) in argument.option_strings for argument in parser.arguments)


@contextlib.contextmanager
def _as_file(sentences: Sequence[str]) -> Iterator[str]:
    with tempfile.NamedTemporaryFile() as file:
        try:
            file.write("".join(f"{sentence}\n" for sentence in sentences).encode())
        except UnicodeEncodeError:
            raise UserError("SENTENCE: is not UTF-8; set the terminal to it, or give a file (-i)") from None
        file.flush()
        yield file.name


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
