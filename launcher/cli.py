"""`zeromt`: parses the command line, runs the command, and turns errors into exit codes.

0 done; 2 the user's input is wrong, with one line on stderr for each error; 75 stopped on request after a complete
save; 130 interrupted; 1 anything else, with a traceback. Nothing heavy is imported before the command line has been
checked.
"""

import difflib
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from launcher import clusters, options
from launcher.dispatch import resolve
from launcher.options import Parser
from launcher.options import node as node_options
from launcher.options.command import Command
from launcher.options.parser import read_arguments
from launcher.planning import options as planning_options

try:
    from launcher.exit_codes import code_of
    from trainer.runs.process.streams import leave_standard_streams, open_standard_streams
except ImportError as error:
    print(
        f"zeromt: error: {error}: another `trainer` is found before zeromt's own: rename it, or fix PYTHONPATH",
        file=sys.stderr,
    )
    raise SystemExit(2) from error


COMMANDS: dict[str, Command] = {
    "prepare": Command(
        summary="prepare a corpus: raw text -> tokenizer, shards and index",
        usage="CONFIG [--tokenizer-of RUN] [--part I/N | --merge] [section.key=value ...]",
        add_arguments=options.add_prepare,
        target="launcher.commands:prepare",
        computes=True,
    ),
    "train": Command(
        summary="train in one process, or as one rank if torchrun started it",
        usage="CONFIG [--from RUN] [--fresh | --reset WHAT] [section.key=value ...]",
        add_arguments=options.add_train,
        target="launcher.commands:train",
        computes=True,
    ),
    **clusters.commands(),
    "launch node": Command(
        summary="train on several machines: start torchrun on this one; the other `launch` commands run this on each",
        usage="CONFIG --nnodes N --rendezvous HOST:PORT --job-id ID [--node-rank R] [--nproc N] [...]",
        add_arguments=node_options.add_launch_node,
        target="launcher.commands:launch_node",
        computes=True,
    ),
    "status": Command(
        summary="show what a run is doing: state, speed, time left, scores, checkpoints, errors, use of its time",
        usage="RUN [--json]",
        add_arguments=options.add_status,
        target="launcher.monitoring.control:status",
    ),
    "stop": Command(
        summary="make a run save a checkpoint and stop",
        usage="RUN [--no-wait]",
        add_arguments=options.add_stop,
        target="launcher.monitoring.control:stop",
    ),
    "log": Command(
        summary="print the output of a run's job, or of its ranks",
        usage="RUN [--follow]",
        add_arguments=options.add_log,
        target="launcher.monitoring.control:log",
    ),
    "translate": Command(
        summary="translate lines, by default from stdin to stdout",
        usage="RUN [-i FILE] [-o FILE] [--beam N] [--n-best K] [--processes N] [--ensemble RUN ...] [--score] [...]",
        add_arguments=options.add_translate,
        target="trainer.inference.translate:run",
        computes=True,
    ),
    "evaluate": Command(
        summary="translate and score a test set (BLEU, chrF, TER ...): prints JSON with signatures",
        usage="RUN [--source FILE --reference FILE | --set SET] [--metrics METRIC ...] [--beam N] [-o FILE]",
        add_arguments=options.add_evaluate,
        target="trainer.evaluation.command:run",
        computes=True,
    ),
    "compare": Command(
        summary="compare runs: scores with significance tests, differing translations, curves, cost",
        usage="RUN RUN [...] [--set SET] [--json | --markdown] [--html FILE] [...]",
        add_arguments=options.add_compare,
        target="trainer.comparison.command:compare_runs",
        computes=True,
    ),
    "report": Command(
        summary="report on one run, as compare does on several",
        usage="RUN [--set SET] [--json | --markdown] [--html FILE] [...]",
        add_arguments=options.add_report,
        target="trainer.comparison.command:report",
        computes=True,
    ),
    "export": Command(
        summary="write the model for Hugging Face Transformers, CTranslate2 or safetensors, and check it",
        usage="RUN --format FORMAT -o DIR [--dtype D | --quantization Q] [--source FILE --reference FILE]",
        add_arguments=options.add_export,
        target="trainer.inference.export.command:run",
        computes=True,
    ),
    "average": Command(
        summary="average the weights of several checkpoints into a new run",
        usage="RUN --last K | --best K -o DIR",
        add_arguments=options.add_average,
        target="trainer.inference.averaging:run",
        computes=True,
    ),
    "import": Command(
        summary="make a run from weights trained elsewhere, to translate with it or to fine-tune it",
        usage="STATE.safetensors --preset NAME --tokenizer MODEL -o RUN [...] | --huggingface DIR -o RUN [...]",
        add_arguments=options.add_import,
        target="trainer.inference.importing.command:run",
        computes=True,
    ),
    "plan": Command(
        summary="estimate memory, time, cost and checkpoint interval of a run on a cluster",
        usage=planning_options.USAGE,
        add_arguments=planning_options.add_plan,
        target="launcher.planning.command:run",
    ),
    "doctor": Command(
        summary="find what on this machine would fail a run or slow it down, and what to do about it",
        usage="[CONFIG] [--json] [section.key=value ...]",
        add_arguments=options.add_doctor,
        target="launcher.doctor.command:run",
    ),
    "completion": Command(
        summary='print a script that completes commands and options: eval "$(zeromt completion bash)"',
        usage="{bash,zsh,fish}",
        add_arguments=options.add_completion,
        target="launcher.cli:completion",
    ),
    "batch": Command(
        summary="print the pairs of an update as text, with their origin and their loss",
        usage="RUN UPDATE [--loss] [--json]",
        add_arguments=options.add_batch,
        target="trainer.looking.batch:run",
        computes=True,
    ),
    "diff": Command(
        summary="find the first update at which two runs differ, and what differs there",
        usage="RUN_A RUN_B",
        add_arguments=options.add_diff,
        target="trainer.looking.diff:run",
        computes=True,
    ),
    "replay": Command(
        summary="repeat updates of a run without some pairs, or find the cause of a loss spike",
        usage="RUN --at UPDATE [--updates N] [--without-dataset D ... | --without-pairs FILE | --blame]",
        add_arguments=options.add_replay,
        target="trainer.looking.replay:run",
        computes=True,
    ),
    "inspect": Command(
        summary="describe a dataset, a checkpoint or a run, and check whether it is complete",
        usage="PATH",
        add_arguments=options.add_inspect,
        target="trainer.inference.inspect:run",
    ),
}


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
        return code_of(error)
    finally:
        leave_standard_streams()


def _run(argv: list[str]) -> int:
    try:
        command, arguments = parse(argv)
    except SystemExit as leaving:  # argparse has printed help, the version or an error
        return leaving.code if isinstance(leaving.code, int) else 2
    if command.computes:
        from trainer.runs.process.environment import check_process

        check_process(os.environ)  # before libraries read the environment and print messages of their own
    from trainer.runs.process.caller import restored_environment

    with restored_environment():  # `main` may have been called by another program, whose environment must not change
        if "config" not in arguments and (plugins := arguments.pop("plugins", [])):  # with CONFIG, it loads them itself
            resolve("configs.plugins:load_named")(plugins)
        return int(resolve(command.target)(**command.given, **arguments))


def parse(argv: Sequence[str]) -> tuple[Command, dict[str, Any]]:
    """The command that `argv` names and its arguments.

    Raises:
        SystemExit: after help or version (0) or a usage error (2).
    """
    name, command, rest = _split(argv)
    parser = Parser(
        prog=f"zeromt {name}",
        usage=f"zeromt {name} {command.usage}",
        description=command.summary,
        allow_abbrev=False,
    )
    command.add_arguments(parser)
    return command, read_arguments(parser, rest)


def _split(argv: Sequence[str]) -> tuple[str, Command, list[str]]:
    """The name of the command (one or two words), the command, and its arguments. Exits for help and errors."""
    parser = Parser(prog="zeromt", usage=_usage(), add_help=False)
    if not argv:
        parser.error(f"COMMAND: none given; give one of {', '.join(COMMANDS)}")
    if argv[0] in ("-h", "--help"):
        parser.exit(_print(_help(COMMANDS)))
    if argv[0] == "--version":
        parser.exit(_print(f"zeromt {_version()}"))
    groups = {name.split()[0] for name in COMMANDS if " " in name}
    if argv[0] == "help":
        return _split(_helped(argv[1:], parser))
    name = " ".join(argv[: 2 if argv[0] in groups else 1])
    rest = list(argv[len(name.split()) :])
    if name in COMMANDS:
        return name, COMMANDS[name], rest
    commands = COMMANDS
    if argv[0] == "launch":  # plugins can define clusters
        commands = COMMANDS | resolve("launcher.jobs.command:commands")(rest) | COMMANDS  # ours, in our order
    if name in commands:
        return name, commands[name], rest
    if argv[0] in groups and argv[1:2] and argv[1] in ("-h", "--help"):
        parser.exit(_print(_help(commands, argv[0])))
    if name in groups:
        allowed = ", ".join(command for command in commands if command.startswith(f"{name} "))
        return parser.error(f"COMMAND: {name!r} is incomplete; give one of {allowed}")
    near = difflib.get_close_matches(name, commands, n=1)
    hint = f"did you mean {near[0]}?" if near else f"give one of {', '.join(commands)}"
    if argv[0] == "launch" and (argv[1].startswith("-") or "." in argv[1]):  # CONFIG or an option, without a place
        hint = f"say where to launch; on this machine: `zeromt launch local {' '.join(argv[1:])}`"
    return parser.error(f"COMMAND: {name!r} is unknown; {hint}")


def _helped(words: Sequence[str], parser: Parser) -> list[str]:
    """The arguments that are equivalent to `help` and some words. If they are fields, prints their help and exits."""
    groups = {name.split()[0] for name in COMMANDS}
    if not words or words[0] in groups or words[0].startswith("-"):
        return [*words, "--help"]
    if len(words) == 1 and (fields := str(resolve("configs.reading.meanings:text")(words[0]))):
        parser.exit(_print(fields))
    return [*words, "--help"]


def completion(*, shell: str) -> int:
    """`zeromt completion SHELL`: print a script that completes commands and options."""
    print(resolve("launcher.completion:script")(COMMANDS, shell))
    return 0


def _usage() -> str:
    return "zeromt COMMAND ..."


def _help(commands: Mapping[str, Command], group: str = "") -> str:
    lines = [f"usage: {_usage()}", "", "A distributed trainer for translation Transformers.", ""]
    for name, command in commands.items():
        if name.startswith(group):
            lines += [f"  zeromt {name} {command.usage}", f"      {command.summary}"]
    lines += [
        "",
        "`zeromt help optimizer` lists the fields of a section, `zeromt help lr` the fields with a name.",
        "CONFIG is a YAML file or the name of an example run; RUN is a run's folder or a checkpoint in it.",
    ]
    return "\n".join(
        [
            *lines,
            "`zeromt COMMAND --help` (or `zeromt help COMMAND`) lists options; `zeromt --version` prints the version.",
        ]
    )


def _print(text: str) -> int:
    print(text)
    return 0


def _version() -> str:
    from importlib import metadata  # imported late: it takes 30 ms, and only this needs it

    try:
        return metadata.version("zeromt")
    except metadata.PackageNotFoundError:
        return "(not installed)"
