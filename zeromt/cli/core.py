"""The commands, by name: those of the core here, and those of each tool in its folder."""

import importlib
import pkgutil
from collections.abc import Iterator
from importlib import util
from pathlib import Path
from types import ModuleType
from typing import get_args

from launcher.options import node, running, slurm, values
from launcher.options.parser import Command, Group, Parser, add_replace


def _add_train(parser: Parser) -> None:
    """Arguments of `zeromt train`."""
    running.add_train(parser)
    _add_check(parser)


def _add_check(parser: Parser) -> None:
    parser.add_argument("--check", action="store_true", help="only check the settings: exit code 0, or 2 with errors")


def _add_prepare(parser: Parser) -> None:
    """Arguments of `zeromt prepare`."""
    running.add_config(parser)
    _add_check(parser)
    which = parser.add_mutually_exclusive_group()
    parser.add_argument(
        "--part",
        group=which,
        metavar="I/N",
        type=values.part,
        help="encode only part I of N, on one of N machines with a shared file system; --merge joins the parts",
    )
    parser.add_argument(
        "--merge", group=which, action="store_true", help="merge the parts into the dataset, once all are encoded"
    )
    add_replace(parser, "another dataset")
    parser.add_argument(
        "--tokenizer-of",
        metavar="RUN[@step]",
        type=values.path,
        help="encode with the tokenizer of this run (or dataset) instead of training one, such as for fine-tuning",
    )


def _add_completion(parser: Parser) -> None:
    """Arguments of `zeromt completion`."""
    parser.add_argument("shell", choices=("bash", "zsh"), help="shell to print the script for")


_BEGIN_WITH = ("init", "prepare", "launch local", "train", "status", "translate", "evaluate", "doctor", "plan")
"""The commands of a first hour, which stand first in their groups."""


def tools() -> Iterator[ModuleType]:
    """The `options.py` of each tool: its `COMMANDS` and, if it has folders of its own, its `STATUS`.

    A tool is a folder of `zeromt` with such a module, which imports nothing heavy.
    """
    for folder in pkgutil.iter_modules([str(Path(__file__).parents[1])]):
        if folder.ispkg and util.find_spec(name := f"zeromt.{folder.name}.options") is not None:
            yield importlib.import_module(name)


def commands() -> dict[str, Command]:
    """Every command, by groups, as help lists them."""
    by_name = dict(_CORE)
    for tool in tools():
        by_name |= tool.COMMANDS
    first = {name: place for place, name in enumerate(_BEGIN_WITH)}
    groups = get_args(Group)
    return dict(sorted(by_name.items(), key=lambda item: (groups.index(item[1].group), first.get(item[0], len(first)))))


_CORE: dict[str, Command] = {
    "prepare": Command(
        summary="prepare a corpus: raw text -> tokenizer, shards and index",
        usage="CONFIG [--check] [--tokenizer-of RUN] [--part I/N | --merge] [section.key=value ...]",
        add_arguments=_add_prepare,
        target="zeromt.cli.commands:prepare",
        computes=True,
        group="prepare data",
    ),
    "train": Command(
        summary="train in one process, or as one rank if torchrun started it",
        usage="CONFIG [--check] [--from RUN] [--fresh | --reset WHAT] [section.key=value ...]",
        add_arguments=_add_train,
        target="zeromt.cli.commands:train",
        computes=True,
        group="train",
    ),
    "launch local": Command(
        summary="train in several processes on this machine, started by torchrun",
        usage="CONFIG [--nproc N] [--max-restarts R] [--from RUN] [--fresh | --reset WHAT] [section.key=value ...]",
        add_arguments=running.add_local,
        target="launcher.start.local:launch",
        computes=True,
        group="train",
    ),
    "launch slurm": Command(
        summary="train on a SLURM cluster, or run any command there, once or in parts: send batch jobs, or print them",
        usage="CONFIG [--site NAME] [--nodes N] [--gpus-per-node G] [--time T] [--wait] [--dry-run] [...] "
        "| [...] [--array N] -- COMMAND ...",
        add_arguments=slurm.add_launch_slurm,
        target="launcher.slurm.submit:launch",
        group="clusters",
    ),
    "launch node": Command(
        summary="train on several machines: start torchrun on this one; `launch slurm` runs this on each",
        usage="CONFIG --nnodes N --rendezvous HOST:PORT --job-id ID [--node-rank R] [--nproc N] [...]",
        add_arguments=node.add_launch_node,
        target="launcher.start.node:launch",
        computes=True,
        group="clusters",
    ),
    "status": Command(
        summary="show what a run is doing: state, speed, time left, scores, checkpoints, errors, use of its time; of a "
        "folder, a table of its runs; of a pipeline, or a corpus in translation, how far it is",
        usage="[RUN] [--json]",
        add_arguments=running.add_status,
        target="zeromt.cli.commands:status",
        group="look into a run",
    ),
    "stop": Command(
        summary="make a run save a checkpoint and stop",
        usage="RUN [--no-wait]",
        add_arguments=running.add_stop,
        target="launcher.monitoring.control:stop",
        group="look into a run",
    ),
    "log": Command(
        summary="print the output of a run's job, or of its ranks",
        usage="RUN [--follow]",
        add_arguments=running.add_log,
        target="launcher.monitoring.control:log",
        group="look into a run",
    ),
    "completion": Command(
        summary="print a script that completes commands, options and files in a shell",
        usage="{bash,zsh}",
        add_arguments=_add_completion,
        target="zeromt.cli.completion:completion",
    ),
}
