"""`zeromt`: parses the command line, runs the command, and turns errors into exit codes.

0 done; 2 the user's input is wrong, with one line on stderr for each error; 75 stopped on request after a complete
save; 130 interrupted; 1 anything else, with a traceback. Nothing heavy is imported before the command line has been
checked.
"""

import difflib
import itertools
import os
import sys
import textwrap
from collections.abc import Sequence
from typing import Any

from configs.process.streams import leave_standard_streams, open_standard_streams
from configs.process.with_torch import leave
from launcher import resolve
from launcher.options.parser import Command, Parser, read_arguments
from zeromt.cli.core import commands
from zeromt.cli.exit_codes import code_of

COMMANDS = commands()
_WIDTH = 120
"""Of help."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: the arguments after `zeromt`; by default those of this process.

    Returns:
        The exit code.
    """
    open_standard_streams()
    try:
        code = _run(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        return leave(code_of(error))
    finally:
        leave_standard_streams()
        # A program that has called `main` gets back what it had.
        sys.stdout, sys.stderr = (getattr(stream, "unfiltered", stream) for stream in (sys.stdout, sys.stderr))


def _run(argv: list[str]) -> int:
    try:
        command, arguments = parse(argv)
    except SystemExit as leaving:  # argparse has printed help, the version or an error
        return leaving.code if isinstance(leaving.code, int) else 2
    if command.computes:
        from configs.process.environment import check_process

        check_process(os.environ)  # before libraries read the environment and print messages of their own
    from configs.process.environment import restored_environment

    with restored_environment():  # `main` may have been called by another program, whose environment must not change
        if "config" not in arguments and (plugins := arguments.pop("plugins", [])):  # with CONFIG, it loads them itself
            resolve("configs.plugins:load_named")(plugins)
        if "cooldown" in arguments:
            arguments = resolve("trainer.runs.parents:with_cooldown")(arguments)
        return int(resolve(command.target)(**arguments))


def parse(argv: Sequence[str]) -> tuple[Command, dict[str, Any]]:
    """The command that `argv` names and its arguments.

    Raises:
        SystemExit: after help or version (0) or a usage error (2).
    """
    command, parser, rest = _parser(argv)
    return command, read_arguments(parser, rest)


def _parser(argv: Sequence[str]) -> tuple[Command, Parser, list[str]]:
    """The command that `argv` names, its parser, and the words behind its name. Exits for help and errors."""
    name, command, rest = _split(argv)
    parser = Parser(prog=f"zeromt {name}", usage=f"zeromt {name} {command.usage}", description=command.summary)
    command.add_arguments(parser)
    return command, parser, rest


def _split(argv: Sequence[str]) -> tuple[str, Command, list[str]]:
    """The name of the command (one or two words), the command, and its arguments. Exits for help and errors."""
    parser = Parser(prog="zeromt", usage="zeromt COMMAND ...", add_help=False)
    groups = {name.split()[0] for name in COMMANDS if " " in name}
    if argv[:1] == ["help"]:
        words = argv[1:]
        if " ".join(words) not in {"", *groups, *COMMANDS} and (matches := _search(words)):
            parser.exit(_print(matches))
        argv = [*words, "--help"]
    if not argv:
        parser.exit(_print(_help()))
    if argv[0] in ("-h", "--help"):
        parser.exit(_print(_help()))
    if argv[0] == "--version":
        parser.exit(_print(f"zeromt {_version()}"))
    name = " ".join(argv[: 2 if argv[0] in groups else 1])
    rest = list(argv[len(name.split()) :])
    if name in COMMANDS:
        return name, COMMANDS[name], rest
    if argv[0] in groups and argv[1:2] in (["-h"], ["--help"]):
        parser.exit(_print(_help_of(argv[0])))
    known = [command for command in COMMANDS if command.startswith(f"{argv[0]} ")] or list(COMMANDS)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.75)
    hint = f"did you mean {near[0]}?" if near else f"give one of {', '.join(known)}"
    return parser.error(f"COMMAND: {name!r} is unknown; {hint}")


def _help() -> str:
    """All commands by groups, a line each if it is short."""
    lines = ["usage: zeromt COMMAND ...", "", "A distributed trainer for translation Transformers."]
    width = max(map(len, COMMANDS))
    for group, members in itertools.groupby(COMMANDS.items(), key=lambda item: item[1].group):
        lines += ["", f"{group}:"]
        for name, command in members:
            begin = f"  {name:{width}}  "
            lines += textwrap.wrap(command.summary, _WIDTH, initial_indent=begin, subsequent_indent=" " * len(begin))
    return "\n".join(
        [
            *lines,
            "",
            "`zeromt help train` (`zeromt train --help`) lists options and fields, `zeromt help optimizer` a section,",
            "`zeromt help WORDS` the commands and fields that have these words.",
            "CONFIG is a YAML file or an example such as tatoeba_demo; RUN is a run's folder or a checkpoint in it.",
            "`zeromt --version` prints the version.",
        ]
    )


def _search(words: Sequence[str]) -> str:
    """The commands whose names and summaries have all words, and the fields of that name, or with all words."""
    from configs.reading.meanings import has_words, text  # imported late: they read the whole configuration

    lines = [f"zeromt {name}: {one.summary}" for name, one in COMMANDS.items()]
    return "\n".join([*(line for line in lines if has_words(line, words)), text(words)])


def _help_of(group: str) -> str:
    """The commands of two words that begin with the same."""
    lines = [f"usage: zeromt {group} ...", ""]
    for name, command in COMMANDS.items():
        if name.startswith(f"{group} "):
            lines += [f"  zeromt {name} {command.usage}", f"      {command.summary}"]
    return "\n".join(lines)


def _print(text: str) -> int:
    print(text)
    return 0


def _version() -> str:
    from importlib import metadata  # imported late: it takes 30 ms, and only this needs it

    try:
        return metadata.version("zeromt")
    except metadata.PackageNotFoundError:
        return "(not installed)"
