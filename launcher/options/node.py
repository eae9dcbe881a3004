"""Arguments of `zeromt launch node`."""

import argparse
import ipaddress
import re

from launcher.options.parser import Parser
from launcher.options.running import add_ranks
from launcher.options.values import whole

_HOST = r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?"


def add_launch_node(parser: Parser) -> None:
    """Arguments of `zeromt launch node`."""
    add_ranks(parser)
    parser.add_argument("--nnodes", metavar="N", type=whole(1, 65_536), required=True, help="number of nodes")
    parser.add_argument(
        "--node-rank", metavar="R", type=whole(0, 65_535), help="this node's number, from 0 (default: SLURM_NODEID)"
    )
    parser.add_argument(
        "--rendezvous",
        metavar="HOST:PORT",
        type=rendezvous,
        required=True,
        help="where the nodes connect: a name or address of node 0 that all nodes can resolve, and a free port on it",
    )
    parser.add_argument(
        "--job-id",
        metavar="ID",
        type=job_id,
        required=True,
        help="an identifier that is the same on all nodes and new for every start",
    )
    parser.add_argument(
        "--interface",
        metavar="NAME",
        type=interface,
        help="network interface for gloo and NCCL, such as ib0 (default: they choose one)",
    )


def rendezvous(text: str) -> tuple[str, int]:
    """Parse HOST:PORT."""
    host, _, port = text.rpartition(":")
    if is_v6 := host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    try:
        is_host = bool(ipaddress.IPv6Address(host)) if is_v6 else bool(re.fullmatch(_HOST, host))
    except ValueError:
        is_host = False
    if not is_host or not (port.isascii() and port.isdigit() and 1 <= int(port) <= 65_535):
        raise argparse.ArgumentTypeError(
            f"{text!r}; allowed is HOST:PORT, a name, an IPv4 address or [IPv6 address], and a port from 1 to 65535"
        )
    return host, int(port)


def job_id(text: str) -> str:
    """Parse the identifier of one start of a job."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", text):
        raise argparse.ArgumentTypeError(f"{text!r}; allowed are letters, digits, '.', '_' and '-', at most 100")
    return text


def interface(text: str) -> str:
    """Parse the names of network interfaces, separated by commas."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,14}(,[A-Za-z0-9][A-Za-z0-9._-]{0,14})*", text):
        raise argparse.ArgumentTypeError(f"{text!r}; allowed is the name of a network interface, such as eth0")
    return text
