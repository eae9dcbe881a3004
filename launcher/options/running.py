"""The arguments of preparing, training, and of looking at runs."""

from launcher.options.parser import Parser, add_plugins, add_run_folder
from launcher.options.values import existing_or_url, part, path, processes, reset, whole


def add_config(parser: Parser) -> None:
    """CONFIG and the overrides behind it."""
    parser.add_argument("config", metavar="CONFIG", type=path, help="a YAML file, or the name of an example run")
    parser.add_argument(
        "overrides",
        metavar="section.key=value",
        nargs="*",
        default=[],  # without it argparse calls the overrides required when CONFIG is missing
        help="settings that replace those of CONFIG, such as optimizer.lr=5e-4",
    )
    add_plugins(parser)


def add_prepare(parser: Parser) -> None:
    """Arguments of `zeromt prepare`."""
    add_config(parser)
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--part",
        metavar="I/N",
        type=part,
        help="encode only part I of N, on one of N machines that share the file system; --merge joins the parts",
    )
    which.add_argument("--merge", action="store_true", help="make the dataset, when all parts are encoded")
    parser.add_argument(
        "--tokenizer-of",
        metavar="RUN[@step]",
        type=path,
        help="encode with the tokenizer of this run (or dataset) and train none, as for fine-tuning it; a dataset that "
        "another tokenizer made of the same corpus gives way: it is renamed to NAME.replaced-DATE-TIME, never deleted",
    )


def add_device(parser: Parser) -> None:
    """--device, for `engine.device`."""
    parser.add_argument(
        "--device",
        choices=("auto", "cpu", "cuda"),
        help="what to compute on; auto takes GPUs if there are any. The same as engine.device=...",
    )


def add_train(parser: Parser) -> None:
    """Arguments of `zeromt train`."""
    add_config(parser)
    add_device(parser)
    start = parser.add_mutually_exclusive_group()
    start.add_argument(
        "--fresh",
        action="store_true",
        help="start at step 0; an existing run is renamed to NAME.replaced-DATE-TIME, never deleted",
    )
    start.add_argument(
        "--reset",
        metavar="WHAT",
        type=reset,
        help="data, optimizer or data,optimizer: begin these anew from the checkpoint's weights, and go on in place",
    )
    add_parent(parser)


def add_parent(parser: Parser) -> None:
    """--from, for fine-tuning."""
    parser.add_argument(
        "--from",
        dest="parent",
        metavar="RUN[@step]",
        type=path,
        help="begin this run at step 0 with the weights of another (a run, an import, an average), for fine-tuning; "
        "the newest checkpoint unless a step is named. Once this run has saved, the same command goes on from there",
    )


def add_launch_local(parser: Parser) -> None:
    """Arguments of `zeromt launch local`."""
    add_train(parser)
    parser.add_argument(
        "--nproc",
        metavar="N",
        type=processes,
        help="processes; auto (the default) takes one per GPU, or per core without a GPU, at most stream.micro_batches",
    )
    parser.add_argument(
        "--max-restarts",
        metavar="R",
        type=whole(0, 1_000_000),
        default=3,
        help="when a process fails, restart from the newest checkpoint, at most R times without a new one (default: 3)",
    )


def add_completion(parser: Parser) -> None:
    """Arguments of `zeromt completion`."""
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="whose script is printed")


def add_doctor(parser: Parser) -> None:
    """Arguments of `zeromt doctor`."""
    parser.add_argument(
        "config",
        metavar="CONFIG",
        nargs="?",
        type=path,
        help="a YAML file, or the name of a shipped run, to be looked at too",
    )
    parser.add_argument("overrides", metavar="section.key=value", nargs="*", default=[], help="settings of CONFIG")
    add_plugins(parser)
    parser.add_argument("--json", dest="as_json", action="store_true", help="a list of objects in place of lines")


def add_inspect(parser: Parser) -> None:
    """Arguments of `zeromt inspect`."""
    parser.add_argument(
        "path", metavar="PATH", type=existing_or_url, help="a dataset, a checkpoint or a run; or a dataset's URL"
    )


def add_stop(parser: Parser) -> None:
    """Arguments of `zeromt stop`."""
    add_run_folder(parser)
    add_plugins(parser)
    parser.add_argument(
        "--no-wait", dest="wait", action="store_false", help="only ask; do not wait until the run has stopped"
    )


def add_log(parser: Parser) -> None:
    """Arguments of `zeromt log`."""
    add_run_folder(parser)
    add_plugins(parser)
    parser.add_argument("-f", "--follow", action="store_true", help="keep printing until Ctrl-C")


def add_status(parser: Parser) -> None:
    """Arguments of `zeromt status`."""
    add_run_folder(parser)
    add_plugins(parser)
    parser.add_argument("--json", dest="as_json", action="store_true", help="print one JSON object instead of lines")
