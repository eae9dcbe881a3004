"""The command `zeromt plan` and its arguments. Imports nothing heavy, because `zeromt --help` reads this module too."""

import argparse
import re
from collections.abc import Callable, Mapping

from launcher.options.parser import Command, Parser
from launcher.options.running import add_config
from launcher.options.values import number, whole
from zeromt.planning.hardware import DEFAULT_MFU

BYTE_UNITS = {
    "": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40,
}  # fmt: skip


def add_plan(parser: Parser) -> None:
    """Arguments of `zeromt plan`."""
    add_config(parser)
    _add_cluster(parser)
    _add_speed(parser)
    parser.add_argument("--json", dest="as_json", action="store_true", help="print one JSON object instead of lines")


def _add_cluster(parser: Parser) -> None:
    from model.gpus import GPUS  # imported late: `zeromt --help` must work even if another `model` is found first

    parser.add_argument(
        "--nodes",
        metavar="N",
        type=whole(1, 65_536),
        default=1,
        help="number of nodes (default: 1)",
    )
    parser.add_argument(
        "--gpus-per-node",
        metavar="G",
        type=whole(1, 1024),
        default=1,
        help="GPUs per node; each runs one rank (default: 1)",
    )
    parser.add_argument(
        "--gpu-memory",
        metavar="BYTES",
        type=quantity(BYTE_UNITS),
        help="memory of one GPU, such as 80GB (default: --gpu's)",
    )
    parser.add_argument(
        "--gpu",
        metavar="NAME",
        type=_gpu,
        default="a100",
        help=f"model of the GPU, whose data sheet gives peak, links and memory: {', '.join(GPUS)} (default: a100)",
    )


def _add_speed(parser: Parser) -> None:
    positive, size = number(0, is_open=True), quantity(BYTE_UNITS)
    parser.add_argument(
        "--peak-tflops",
        metavar="T",
        type=positive,
        help="peak TFLOP/s of one GPU in the run's precision (default: --gpu's)",
    )
    parser.add_argument(
        "--mfu",
        metavar="FRACTION",
        type=number(0, 1, is_open=True),
        help="fraction of the peak that a GPU reaches while it computes: yours to give, for instance a run's `mfu` "
        f"(default: {DEFAULT_MFU}; one H100 reached 0.13 with base, 0.27 with big)",
    )
    parser.add_argument(
        "--intra-bandwidth",
        metavar="BYTES",
        type=size,
        help="bytes per second from one GPU to others in its node, one way (default: --gpu's)",
    )
    parser.add_argument(
        "--inter-bandwidth",
        metavar="BYTES",
        type=size,
        default=int(50e9),
        help="bytes per second from one node to others, over all its adapters, one way (default: 50GB)",
    )
    parser.add_argument(
        "--length", metavar="N", type=number(1), help="mean tokens of a sentence (default: the dataset's, or 32)"
    )
    parser.add_argument(
        "--padding",
        metavar="FRACTION",
        type=number(0, 0.99),
        default=0.1,
        help="fraction of a micro-batch's tokens that are padding (default: 0.1)",
    )


def quantity(units: Mapping[str, int]) -> Callable[[str], int]:
    """A parser for a positive amount with a unit, such as 80GB or 1.5GiB."""

    def parse(text: str) -> int:
        match = re.fullmatch(r"(\d{1,18}(?:\.\d{1,9})?(?:e\d{1,2})?)\s?([A-Za-z]{0,3})", text)
        if match and match[2].upper() in units:
            value = float(match[1]) * units[match[2].upper()]
            if 1 <= value < 2**60:
                return int(value)
        names = ", ".join(sorted(name.replace("I", "i") for name in units if name))
        raise argparse.ArgumentTypeError(f"{text!r}; allowed is a positive number, alone or with one of {names}")

    return parse


def _gpu(text: str) -> str:
    from model.gpus import GPUS

    name = text.lower().replace("_", "-")
    if name not in GPUS:
        raise argparse.ArgumentTypeError(f"{text!r}; allowed is one of {', '.join(GPUS)}")
    return name


COMMANDS = {
    "plan": Command(
        summary="estimate parameters, FLOPs, memory and time of a run on one GPU or a cluster",
        usage="CONFIG [--nodes N --gpus-per-node G] [--gpu NAME] [--gpu-memory 80GB] [--json] [...]",
        add_arguments=add_plan,
        target="zeromt.planning.command:run",
    ),
}
