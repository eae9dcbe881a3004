"""Arguments of the commands that read a configuration, train, and monitor runs."""

import argparse

from launcher.options.parser import Parser, add_plugins, add_run_folder
from launcher.options.values import existing_folder, matching, path, processes, whole


def add_config(parser: Parser, *, is_optional: bool = False) -> None:
    """CONFIG, followed by settings that replace its own."""
    nargs = "?" if is_optional else None
    parser.add_argument(
        "config", metavar="CONFIG", nargs=nargs, type=path, help="a YAML file, or the name of an example run"
    )
    parser.add_argument(
        "overrides",
        metavar="section.key=value",
        nargs="*",
        default=[],  # without it argparse reports missing settings too when CONFIG is missing
        help="settings that replace those of CONFIG, such as optimizer.lr=5e-4",
    )
    add_plugins(parser)


def add_device(parser: Parser) -> None:
    """--device, for `engine.device`."""
    parser.add_argument(
        "--device",
        choices=("auto", "cpu", "cuda"),
        help="device to compute on; auto takes GPUs if there are any. The same as engine.device=...",
    )


def add_train(parser: Parser) -> None:
    """Arguments of `zeromt train`."""
    add_config(parser)
    add_device(parser)
    start = parser.add_mutually_exclusive_group()
    parser.add_argument(
        "--fresh",
        group=start,
        action="store_true",
        help="start at step 0; an existing run is renamed to NAME.replaced-DATE-TIME, never deleted",
    )
    parser.add_argument(
        "--reset",
        group=start,
        metavar="WHAT",
        type=matching("data|optimizer|data,optimizer", "data, optimizer or data,optimizer"),
        help="data, optimizer or data,optimizer: resume from the checkpoint's weights, but start these anew",
    )
    add_parent(parser)


def add_parent(parser: Parser) -> None:
    """--from, for fine-tuning."""
    parser.add_argument(
        "--from",
        dest="parent",
        metavar="RUN[@step]",
        type=path,
        help="start this run at step 0 with the weights of another (a run, an import, an average), for fine-tuning; "
        "by default those of its newest checkpoint. Once this run has saved, the same command resumes it",
    )
    parser.add_argument(
        "--cooldown",
        metavar="N",
        type=whole(1, 1_000_000_000),
        default=argparse.SUPPRESS,  # where it is given, settings replace it before the command is called
        help="with --from: instead, continue with its moments and place in the data while the rate decays to 0 "
        "over N updates",
    )


def add_local(parser: Parser) -> None:
    """Arguments of `zeromt launch local`."""
    add_ranks(parser)
    parser.add_argument(
        "--max-restarts",
        metavar="R",
        type=whole(0, 1_000_000),
        default=3,
        help="when a process fails, restart from the newest checkpoint, at most R times without a new one (default: 3)",
    )
    parser.add_argument("--dry-run", action="store_true", help="print torchrun's command line, but start nothing")


def add_ranks(parser: Parser) -> None:
    """Arguments of the commands that start ranks here: those of `zeromt train`, and how many ranks."""
    add_train(parser)
    parser.add_argument(
        "--nproc",
        metavar="N",
        type=processes,
        help="number of processes; auto (the default): one per GPU, or per core without a GPU, up to "
        "stream.micro_batches",
    )


def add_stop(parser: Parser) -> None:
    """Arguments of `zeromt stop`."""
    add_run_folder(parser)
    parser.add_argument(
        "--no-wait", dest="wait", action="store_false", help="return at once, without waiting until the run has stopped"
    )


def add_log(parser: Parser) -> None:
    """Arguments of `zeromt log`."""
    add_run_folder(parser)
    parser.add_argument("-f", "--follow", action="store_true", help="keep printing new lines until Ctrl-C")


def add_status(parser: Parser) -> None:
    """Arguments of `zeromt status`."""
    parser.add_argument(
        "run",
        metavar="RUN",
        nargs="?",
        type=existing_folder,
        help="a run's folder, or one that has runs in it; by default `runs`, or this folder",
    )
    parser.add_argument("--json", dest="as_json", action="store_true", help="print JSON instead of lines")
