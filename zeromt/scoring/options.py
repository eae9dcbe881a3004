"""The command `zeromt score` and its arguments."""

from launcher.options.parser import Command, Parser, add_plugins, add_raw_weights
from launcher.options.values import existing, new_file, part
from zeromt.translator.arguments import add_precision, add_processes


def add_score(parser: Parser) -> None:
    """Arguments of `zeromt score`."""
    parser.add_argument("dataset", metavar="DATASET", type=existing, help="a prepared dataset")
    parser.add_argument(
        "--run", metavar="RUN", type=existing, required=True, help="a run, or a checkpoint, that judges the targets"
    )
    parser.add_argument(
        "--reverse",
        metavar="RUN",
        type=existing,
        help="one of the other direction, that judges the sources: for dual conditional cross-entropy",
    )
    which = parser.add_mutually_exclusive_group()
    parser.add_argument(
        "--part",
        group=which,
        metavar="I/N",
        type=part,
        help="score only part I of N, on one of N machines; what is there already stays. `slurm` takes I and N from a "
        "job array",
    )
    parser.add_argument("--merge", group=which, action="store_true", help="write the scores, once all parts are ready")
    parser.add_argument(
        "--jsonl",
        metavar="FILE",
        type=new_file,
        help="write all pairs with scores to this file, for prepare (reader=jsonl); with --part, give it to --merge",
    )
    add_raw_weights(parser)
    add_precision(parser)
    add_processes(parser)
    add_plugins(parser)


COMMANDS = {
    "score": Command(
        summary="score the pairs of a dataset by models: log-probabilities, dual cross-entropy",
        usage="DATASET --run RUN [--reverse RUN] [--jsonl FILE] [--part I/N | --merge] [--processes N] [...]",
        add_arguments=add_score,
        target="zeromt.scoring.command:run",
        computes=True,
        group="prepare data",
    ),
}
