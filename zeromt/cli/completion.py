"""Shell completion of `zeromt`'s commands, options and choices: by shtab for bash and zsh, our own for fish."""

import argparse
import shlex
from collections.abc import Iterator, Mapping

from launcher.options.command import Command
from launcher.options.parser import Parser

FILES = frozenset(
    {"path", "existing", "existing_file", "existing_folder", "existing_or_url", "input_file"}
    | {"new_path", "output", "output_file", "other_file"}
)
"""Value types of `launcher.options.values` that are files or folders."""


def script(commands: Mapping[str, Command], shell: str) -> str:
    """The script of a shell.

    Args:
        commands: by name, of one word or two.
        shell: bash, zsh or fish.
    """
    if shell == "fish":
        return "\n".join(_fish(commands))
    import shtab

    return str(shtab.complete(tree(commands), shell))


def tree(commands: Mapping[str, Command]) -> argparse.ArgumentParser:
    """One parser for all commands; those of two words are subcommands of their first word."""
    root = Parser(prog="zeromt", description="A distributed trainer for translation Transformers.")
    root.add_argument("--version", action="store_true", help="print the version")
    below = root.add_subparsers(parser_class=Parser)
    groups: dict[str, argparse._SubParsersAction[Parser]] = {}
    for name, command in commands.items():
        first, _, second = name.partition(" ")
        if second and first not in groups:
            groups[first] = below.add_parser(first, help=f"{first} ...").add_subparsers(parser_class=Parser)
        parent = groups[first] if second else below
        parser = parent.add_parser(second or first, help=_plain(command.summary), allow_abbrev=False)
        command.add_arguments(parser)
        for action in parser._actions:
            action.help = _plain(action.help or "")
            if takes_a_file(action):
                action.complete = {"bash": "_shtab_compgen_files", "zsh": "_files"}  # type: ignore[attr-defined]
    return root


def takes_a_file(action: argparse.Action) -> bool:
    """Whether an argument is the name of a file or folder."""
    return getattr(action.type, "__name__", "") in FILES


def _plain(text: str) -> str:
    """Text without characters that shells or argparse would interpret."""
    return text.replace("%", "%%").replace("`", "'").replace('"', "'").replace("$", "")


def _fish(commands: Mapping[str, Command]) -> Iterator[str]:
    """One line for each command and option."""
    yield "# fish completions of zeromt"
    yield "complete -c zeromt -e"
    for first in dict.fromkeys(name.split()[0] for name in commands):
        summary = commands[first].summary if first in commands else f"{first} ..."
        yield _line("__fish_use_subcommand", "-f", "-a", first, "-d", summary)
    for name, command in commands.items():
        parser = Parser(prog=name, add_help=True)
        command.add_arguments(parser)
        first, _, second = name.partition(" ")
        where = f"__fish_seen_subcommand_from {first}"
        if second:
            others = " ".join(other.split()[1] for other in commands if other.startswith(f"{first} "))
            yield _line(
                f"{where}; and not __fish_seen_subcommand_from {others}", "-f", "-a", second, "-d", command.summary
            )
            where += f"; and __fish_seen_subcommand_from {second}"
        for action in parser._actions:
            words = [part for option in action.option_strings for part in _fish_option(option)]
            if action.choices is not None:
                words += ["-x", "-a", " ".join(map(str, action.choices))]
            elif action.option_strings and action.nargs != 0:
                words += ["-r", *([] if takes_a_file(action) else ["-f"])]
            if words:
                yield _line(where, *words, "-d", action.help or "")


def _fish_option(option: str) -> tuple[str, str]:
    if option.startswith("--"):
        return "-l", option[2:]
    return ("-s", option[1:]) if len(option) == 2 else ("-o", option[1:])


def _line(condition: str, *words: str) -> str:
    return f"complete -c zeromt -n {shlex.quote(condition)} {' '.join(map(shlex.quote, words))}"
