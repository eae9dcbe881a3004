"""The command `zeromt plan` and its arguments. Imports nothing heavy, because `zeromt --help` reads this module too."""

import argparse
import re
from collections.abc import Callable, Mapping

from launcher.options.command import Command
from launcher.options.parser import Parser
from launcher.options.running import add_config
from launcher.options.values import mode_of, new_path, number, output_file, whole
from zeromt.planning.hardware import DEFAULT_MFU

BYTE_UNITS = {
    "": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40,
}  # fmt: skip
COUNT_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "B": 10**9, "T": 10**12}


def add_plan(parser: Parser) -> None:
    """Arguments of `zeromt plan`."""
    add_config(parser)
    _add_cluster(parser)
    _add_speed(parser)
    _add_prices(parser)
    parser.add_argument("--json", dest="as_json", action="store_true", help="print one JSON object instead of lines")
    parser.add_argument("--table", action="store_true", help="add a table of plans for 8, 16, ... 4,096 GPUs")
    parser.add_argument(
        "--write",
        metavar="FILE",
        type=_new_file,
        help="write a copy of CONFIG in which only the planned settings are changed",
    )


def _add_cluster(parser: Parser) -> None:
    from model.gpus import GPUS  # imported late: `zeromt --help` must work even if another `model` is found first

    parser.add_argument(
        "--nodes",
        metavar="N",
        type=whole(1, 65_536),
        help="number of nodes (default: 1; with neither this nor --gpus-per-node: what this machine, one GPU and more "
        "would make of the run, in a few lines)",
    )
    parser.add_argument(
        "--gpus-per-node", metavar="G", type=whole(1, 1024), help="GPUs per node; each runs one rank (default: 1)"
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
        help=f"model of the GPU, whose data sheet gives peak, links, power and memory: {', '.join(GPUS)} (default: "
        "a100)",
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
        "--storage",
        metavar="BYTES",
        type=size,
        default=int(2e9),
        help="bytes per second that all ranks together write (default: 2GB)",
    )
    parser.add_argument(
        "--mtbf",
        metavar="HOURS[/gpu|/node]",
        type=mtbf,
        default=(50_000.0, None),
        help="mean time between failures of one GPU, or of one node (default: 50000/gpu)",
    )
    parser.add_argument(
        "--restart-minutes",
        metavar="M",
        type=number(0, is_open=True),
        default=5.0,
        help="minutes from a failure to the next update, without reading the checkpoint (default: 5)",
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


def _add_prices(parser: Parser) -> None:
    positive = number(0, is_open=True)
    parser.add_argument("--price", metavar="P", type=positive, help="price of one GPU for an hour")
    parser.add_argument("--watts", metavar="W", type=positive, help="power of one GPU (default: --gpu's)")
    parser.add_argument("--kwh-price", metavar="P", type=positive, help="price of a kilowatt hour")
    limit = parser.add_mutually_exclusive_group()
    limit.add_argument(
        "--tokens",
        metavar="N",
        type=quantity(COUNT_UNITS),
        help="target tokens to train on, such as 10G (default: training.max_updates)",
    )
    limit.add_argument("--epochs", metavar="E", type=positive, help="passes over the prepared datasets")


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


def mtbf(text: str) -> tuple[float | None, float | None]:
    """Parse hours between failures, per GPU and per node; one of the two is None."""
    hours, _, unit = text.partition("/")
    if unit in ("", "gpu", "node"):
        try:
            value = number(0, is_open=True)(hours)
        except argparse.ArgumentTypeError:
            value = 0.0
        if value > 0:
            return (None, value) if unit == "node" else (value, None)
    raise argparse.ArgumentTypeError(f"{text!r}; allowed is a positive number of hours with /gpu, /node or neither")


def _gpu(text: str) -> str:
    from model.gpus import GPUS

    name = text.lower().replace("_", "-")
    if name not in GPUS:
        raise argparse.ArgumentTypeError(f"{text!r}; allowed is one of {', '.join(GPUS)}")
    return name


def _new_file(text: str) -> str:
    """Parse the path of a file to write, which must not exist yet."""
    name = output_file(new_path(text))
    if name is None or mode_of(name) is not None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a new file; give a new file in a folder that exists")
    return name


COMMANDS = {
    "plan": Command(
        summary="estimate memory, time, cost and checkpoint interval of a run, on this machine, one GPU or a cluster",
        usage="CONFIG [--nodes N --gpus-per-node G] [--gpu NAME] [--gpu-memory 80GB] [--table] [--json] [--write FILE] "
        "[...]",
        add_arguments=add_plan,
        target="zeromt.planning.command:run",
    ),
}
