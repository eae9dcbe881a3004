"""`zeromt launch ssh` on the command line."""

import argparse
import re
from typing import Any

from launcher.options.batch import add_site
from launcher.options.command import Command
from launcher.options.node import add_network, rendezvous
from launcher.options.parser import Parser
from launcher.options.running import add_ranks
from launcher.options.values import existing_file, path, whole

CONNECT_SECONDS = 30


def add_launch_ssh(parser: Parser) -> None:
    """Arguments of `zeromt launch ssh`."""
    add_ranks(parser)
    add_site(parser)
    parser.add_argument(
        "--hosts",
        metavar="FILE",
        type=existing_file,
        help="file with one host per line, [user@]host [slots=N] [port=P]; slots is the number of processes, instead "
        "of --nproc; the first host is node 0",
    )
    parser.add_argument(
        "--rendezvous",
        metavar="HOST:PORT",
        type=rendezvous,
        help="where the nodes connect: a name or address of the first host that all hosts can resolve, and a free port "
        "on it (default: its name in FILE, and a port from 20000 to 29999)",
    )
    parser.add_argument(
        "--python",
        metavar="PATH",
        type=python,
        help="path of a Python with zeromt on every host (default: the profile's, or this one)",
    )
    parser.add_argument(
        "--directory",
        metavar="DIR",
        type=directory,
        help="working directory of the job on every host (default: the profile's, or the current folder)",
    )
    parser.add_argument(
        "--environment",
        metavar="NAME=VALUE",
        type=variable,
        action=Variables,
        help="an environment variable of the job on every host, such as NCCL_DEBUG=INFO; may be repeated",
    )
    parser.add_argument("--ssh-config", metavar="FILE", type=existing_file, help="ssh's configuration (ssh -F)")
    parser.add_argument("--identity", metavar="FILE", type=existing_file, help="private key (ssh -i)")
    parser.add_argument(
        "--connect-timeout",
        metavar="S",
        type=whole(1, 3600),
        help=f"seconds to wait for each host to answer (default: {CONNECT_SECONDS})",
    )
    add_network(parser, has_profile=True)


class Variables(argparse.Action):
    """An argparse action that collects NAME=VALUE pairs in a dictionary."""

    def __call__(self, parser: object, namespace: argparse.Namespace, values: Any, option: str | None = None) -> None:
        """Add a pair."""
        setattr(namespace, self.dest, {**(getattr(namespace, self.dest) or {}), values[0]: values[1]})


def python(text: str) -> str:
    """Parse a path. It must need no quotes in any shell, because it is passed to a remote shell."""
    name = path(text)
    if not re.fullmatch(r"[A-Za-z0-9._/][A-Za-z0-9._/+-]*", name):
        raise argparse.ArgumentTypeError(f"{text!r}; allowed are letters, digits, '.', '_', '/', '+' and '-'")
    return name


def directory(text: str) -> str:
    """Parse an absolute path."""
    name = path(text)
    if not name.startswith("/"):
        raise argparse.ArgumentTypeError(f"{text!r}; allowed is an absolute path")
    return name


def variable(text: str) -> tuple[str, str]:
    """Parse NAME=VALUE."""
    name, is_given, value = text.partition("=")
    if not is_given or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) or "\0" in value:
        raise argparse.ArgumentTypeError(f"{text!r}; allowed is NAME=VALUE, a name of letters, digits and '_'")
    return name, value


COMMAND = Command(
    summary="train on several machines with a shared file system: start torchrun on each by ssh",
    usage="CONFIG --hosts FILE [--nproc N] [--rendezvous HOST:PORT] [--interface NAME] [...]",
    add_arguments=add_launch_ssh,
    target="launcher.commands:launch_here",
    group="clusters",
)
