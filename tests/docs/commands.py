"""Whether the words of a shell block are a command that there is, with options that it has."""

import importlib.util
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from typing import Any

from configs import load_run
from launcher.options import values
from launcher.options.parser import Parser, read_arguments
from tests.conftest import REPO
from zeromt.cli.main import _split, in_array

_OTHERS = frozenset(
    """. apptainer awk bash buildah cd chmod cp curl cut date debootstrap docker du echo eval export git grep gzip head
    jupyter kill kubectl ls mkdir mv nvidia-smi parallel paste pdsh pre-commit rm sacrebleu sbatch sed seq shuf sleep
    sort spm_encode squeue ssh tail tar tensorboard torchrun unzip wc yes zcat""".split()  # noqa: SIM905
)
"""Programs of others: bash alone looks at their words."""
_THAT_LOOK = {
    *(values.existing, values.existing_file, values.existing_folder, values.existing_or_url, values.input_file),
    values.dataset_folder,
}
_WORDS_OF_THE_SHELL = {"do", "then", "else", "!", "if", "while", "until"}
_ENDS = set("|;&()")


def problems(text: str) -> list[str]:
    """What is wrong with a shell block."""
    done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
    found = [done.stderr] if done.returncode else []
    for words in _commands(text):
        try:
            _check(words)
        except (AssertionError, SystemExit, ValueError) as error:
            found.append(f"{shlex.join(words)}: {error}")
        except Exception as error:
            found.append(f"{shlex.join(words)}: {type(error).__name__}: {error}")
    return found


def _commands(text: str) -> Iterator[list[str]]:
    """The words of each simple command, without redirections."""
    for line in _whole_lines(text.replace("\\\n", " ")):
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|;&<>()")
        lexer.whitespace_split = True
        words: list[str] = []
        skipped = False
        for word in lexer:
            if set(word) <= _ENDS | set("<>") and set(word) & _ENDS:
                yield from _command(words)
                words = []
            elif set(word) <= set("<>&"):
                skipped = True
            elif skipped:
                skipped = False
            else:
                words.append(word)
        yield from _command(words)


def _whole_lines(text: str) -> Iterator[str]:
    """Lines, one where quotes go over several."""
    line = ""
    for part in text.splitlines():
        line += part
        try:
            shlex.split(line, comments=True)
        except ValueError:  # no closing quotation
            line += "\n"
        else:
            yield line
            line = ""
    if line:
        yield line


def _command(words: list[str]) -> Iterator[list[str]]:
    while words and (words[0] in _WORDS_OF_THE_SHELL or re.match(r"[A-Za-z_]+=", words[0])):
        words = words[1:]
    if words and words[0] not in ("for", "done", "fi"):
        yield [re.sub(r"\$\w+", "4711", word) for word in words]


def _check(words: list[str]) -> None:
    program, *arguments = words
    program = program.rpartition(".venv/bin/")[2]
    if program == "zeromt":
        if arguments[:1] not in (["help"], ["--version"]):
            given = _parsed(arguments)
            if not given.get("plugins"):  # its kinds would be unknown
                load_run("debug", given.get("overrides", []))
    elif program == "make":
        targets = [word for word in arguments if "=" not in word]
        text = (REPO / "Makefile").read_text()
        for target in targets:
            assert re.search(rf"^[^\t#\n]*(^|\s){re.escape(target)}( [^:\n]*)?:", text, re.M), f"no target {target}"
    elif program == "pip" or arguments[:2] == ["-m", "pip"]:
        _check_pip(arguments)
    elif program == "python" and "-m" in arguments:
        module = arguments[arguments.index("-m") + 1]
        assert importlib.util.find_spec(module) is not None, f"no module {module}"
    elif program != "python":
        assert program in _OTHERS, (
            f"{program}: unknown; add it to _OTHERS of tests/docs/commands.py if it is somebody's"
        )


def _parsed(arguments: list[str]) -> dict[str, Any]:
    """As `zeromt.cli.main.parse`, of files and folders that need not be there."""
    name, command, rest = _split(arguments)
    parser = Parser(prog=f"zeromt {name}", usage="", allow_abbrev=False)
    command.add_arguments(parser)
    for action in parser._actions:
        if action.type in _THAT_LOOK:
            action.type = None
    own, words = in_array(parser, rest)
    if not words:
        return read_arguments(parser, own)
    read_arguments(parser, [*own, words[0]])
    return _parsed(list(words))


def _check_pip(arguments: list[str]) -> None:
    extras = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for word in arguments:
        named = re.search(r"(?:zeromt|^\.)\[([\w,]+)\]", word)
        for extra in named[1].split(",") if named else ():
            assert extra in extras, f"no extra {extra}"
