"""The command `zeromt sweep` and its arguments."""

from launcher.options.command import Command
from launcher.options.parser import Parser, add_plugins
from launcher.options.values import part, path, processes


def add_sweep(parser: Parser) -> None:
    """Arguments of `zeromt sweep`."""
    parser.add_argument("config", metavar="CONFIG", type=path, help="a YAML file, or the name of an example run")
    parser.add_argument(
        "words",
        metavar="SETTING",
        nargs="+",
        help="'optimizer.lr=[1e-4,3e-4]' tries each value, with each of other such settings; '{optimizer.lr: 1e-4, "
        "model.dropout: 0.3}' is one combination, and several of these are tried one by one; a setting with one value "
        "holds for all runs. A value that is a list itself stands in brackets of its own",
    )
    add_plugins(parser)
    parser.add_argument("--nproc", metavar="N", type=processes, help="number of processes of each run; see launch")
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--part",
        metavar="I/N",
        type=part,
        help="train only every N-th run, from the I-th on, on one of N machines; slurm takes I and N from a job array",
    )
    which.add_argument("--merge", action="store_true", help="train nothing, and compare what the parts have trained")
    parser.add_argument("--dry-run", action="store_true", help="print the runs and their settings; train nothing")


COMMANDS = {
    "sweep": Command(
        summary="train a run with several values of some settings, and compare what comes of each",
        usage="CONFIG 'KEY=[VALUE,VALUE]' [...] [KEY=VALUE ...] [--part I/N | --merge] [--dry-run]",
        add_arguments=add_sweep,
        target="zeromt.sweeping.command:run",
        group="train",
    ),
}
