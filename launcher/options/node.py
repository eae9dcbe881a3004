"""Arguments of `zeromt launch node`, each checked as far as that needs no configuration."""

import argparse
import re
from collections.abc import Sequence
from typing import Any

from launcher.options import Parser, add_launch_local
from launcher.options.parser import read_arguments
from launcher.options.values import whole

_HOST = r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?"
JOIN_SECONDS, LOST_SECONDS = 300, 15


def add_launch_node(parser: Parser) -> None:
    """Arguments of `zeromt launch node`."""
    add_launch_local(parser)
    parser.add_argument("--nnodes", metavar="N", type=whole(1, 65_536), required=True, help="nodes of the job")
    parser.add_argument(
        "--node-rank", metavar="R", type=whole(0, 65_535), help="this node's number, from 0 (default: SLURM_NODEID)"
    )
    parser.add_argument(
        "--rendezvous",
        metavar="HOST:PORT",
        type=rendezvous,
        required=True,
        help="where the nodes meet: a name or address of node 0 that all nodes can resolve, and a free port there",
    )
    parser.add_argument(
        "--job-id", metavar="ID", type=job_id, required=True, help="the same on all nodes, and new for every start"
    )
    add_network(parser)


def parse_launch_node(argv: Sequence[str]) -> dict[str, Any]:
    """The arguments of `zeromt launch node` by name, for whoever calls it without a command line.

    Raises:
        SystemExit: after a usage error (2), which is said.
    """
    parser = Parser(prog="zeromt launch node", allow_abbrev=False)
    add_launch_node(parser)
    return read_arguments(parser, argv)


def add_network(parser: Parser, *, has_profile: bool = False) -> None:
    """What every way to launch on several nodes lets one say of the network.

    Args:
        parser: gets the arguments.
        has_profile: whether a site's profile says what the user does not.
    """
    parser.add_argument(
        "--interface",
        metavar="NAME",
        type=interface,
        help="network interface of gloo and NCCL, such as ib0 (default: they choose)",
    )
    parser.add_argument(
        "--join-timeout",
        metavar="S",
        type=whole(1, 86_400),
        default=None if has_profile else JOIN_SECONDS,
        help=f"seconds within which all nodes must have joined (default: {JOIN_SECONDS})",
    )
    parser.add_argument(
        "--node-timeout",
        metavar="S",
        type=whole(3, 86_400),
        default=None if has_profile else LOST_SECONDS,
        help=f"seconds of silence after which a node is lost and the others end (default: {LOST_SECONDS})",
    )


def rendezvous(text: str) -> tuple[str, int]:
    """HOST:PORT."""
    host, _, port = text.rpartition(":")
    if not re.fullmatch(_HOST, host) or not (port.isascii() and port.isdigit() and 1 <= int(port) <= 65_535):
        raise argparse.ArgumentTypeError(
            f"{text!r}; allowed is HOST:PORT, a name or IPv4 address and a port from 1 to 65535"
        )
    return host, int(port)


def job_id(text: str) -> str:
    """A word that names a start of the job."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", text):
        raise argparse.ArgumentTypeError(f"{text!r}; allowed are letters, digits, '.', '_' and '-', at most 100")
    return text


def interface(text: str) -> str:
    """Names of network interfaces, with commas between them."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,14}(,[A-Za-z0-9][A-Za-z0-9._-]{0,14})*", text):
        raise argparse.ArgumentTypeError(f"{text!r}; allowed is the name of a network interface, such as eth0")
    return text
