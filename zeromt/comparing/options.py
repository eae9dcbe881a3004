"""The command `zeromt compare` and its arguments."""

from launcher.options.parser import Command, Parser, add_plugins, add_raw_weights
from launcher.options.values import existing, whole
from zeromt.translator.arguments import add_metrics, add_precision, add_search


def add_compare(parser: Parser) -> None:
    """Arguments of `zeromt compare`."""
    parser.add_argument(
        "runs",
        metavar="RUN",
        type=existing,
        nargs="+",
        help="folders of runs, or checkpoints in them; each further one is tested against the first, one alone is only "
        "scored",
    )
    parser.add_argument(
        "--set",
        dest="sets",
        metavar="SET",
        action="append",
        help="a held-out set that every run translates: the name of a set of any of the runs, or '{name: N, source: F, "
        "references: [G]}'; may be repeated (default: the sets that all runs have)",
    )
    add_metrics(parser)
    parser.add_argument("--json", dest="as_json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--bootstrap",
        metavar="N",
        type=whole(0, 1_000_000),
        default=1000,
        help="number of bootstrap resamples, for confidence intervals; 0: none (default: 1000)",
    )
    parser.add_argument(
        "--randomisation",
        metavar="N",
        type=whole(0, 1_000_000),
        default=10_000,
        help="number of trials of the paired approximate randomisation test; 0: none (default: 10000)",
    )
    add_raw_weights(parser)
    add_precision(parser)
    add_search(parser)
    add_plugins(parser)


COMMANDS = {
    "compare": Command(
        summary="compare runs in one table: scores with significance tests, fields that differ, cost",
        usage="RUN [RUN ...] [--set SET] [--json] [...]",
        add_arguments=add_compare,
        target="zeromt.comparing.command:compare_runs",
        computes=True,
        group="look into a run",
    ),
}
