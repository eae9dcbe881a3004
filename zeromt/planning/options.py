"""The command `zeromt plan` and its arguments. Imports nothing heavy, because `zeromt --help` reads this module too."""

import argparse
import re

from launcher.options.parser import Command, Parser
from launcher.options.running import add_config
from launcher.options.values import number, whole

UNITS = {
    "": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40,
}  # fmt: skip


def add_plan(parser: Parser) -> None:
    """Arguments of `zeromt plan`."""
    from model.gpus import GPUS  # imported late: `zeromt --help` must work even if another `model` is found first

    add_config(parser)
    parser.add_argument("--nodes", metavar="N", type=whole(1, 65_536), help="number of nodes (default: 1)")
    parser.add_argument(
        "--gpus-per-node", metavar="G", type=whole(1, 1024), help="GPUs per node; each runs one rank (default: 1)"
    )
    parser.add_argument(
        "--gpu",
        metavar="NAME",
        type=str.lower,
        choices=tuple(GPUS),
        help=f"model of the GPU, whose data sheet gives peak, links and memory: {', '.join(GPUS)} (default: a100)",
    )
    parser.add_argument(
        "--gpu-memory", metavar="BYTES", type=_bytes, help="memory of one GPU, such as 80GB (default: --gpu's)"
    )
    parser.add_argument(
        "--mfu",
        metavar="FRACTION",
        type=number(0, 1, is_open=True),
        help="fraction of the peak that a GPU reaches while it computes: yours to give, for instance a run's `mfu` "
        "(default: 0.2; one H100 reached 0.13 with base, 0.27 with big)",
    )
    parser.add_argument(
        "--length", metavar="N", type=number(1), help="mean tokens of a sentence (default: the dataset's, or 32)"
    )
    parser.add_argument("--json", dest="as_json", action="store_true", help="print one JSON object instead of lines")


def _bytes(text: str) -> int:
    match = re.fullmatch(r"(\d{1,18}(?:\.\d{1,9})?)\s?([A-Za-z]{0,3})", text)
    value = float(match[1]) * UNITS.get(match[2].upper(), 0) if match else 0
    if not 1 <= value < 1 << 60:
        names = ", ".join(name.replace("I", "i") for name in UNITS if name)
        raise argparse.ArgumentTypeError(f"{text!r}; allowed is a positive number, alone or with one of {names}")
    return int(value)


COMMANDS = {
    "plan": Command(
        summary="estimate parameters, FLOPs, memory and time of a run on one GPU or a cluster",
        usage="CONFIG [--nodes N --gpus-per-node G] [--gpu NAME] [--gpu-memory 80GB] [--json] [...]",
        add_arguments=add_plan,
        target="zeromt.planning.command:run",
    ),
}
