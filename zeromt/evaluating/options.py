"""The command `zeromt evaluate` and its arguments."""

from launcher.options.parser import Command, Parser
from launcher.options.values import existing_file, new_file
from zeromt.translator.arguments import add_metrics, add_paragraphs, add_runs, add_search


def add_evaluate(parser: Parser) -> None:
    """Arguments of `zeromt evaluate`."""
    add_runs(parser)
    parser.add_argument("--source", metavar="FILE", type=existing_file, help="sentences to translate")
    parser.add_argument(
        "--reference",
        metavar="FILE",
        type=existing_file,
        action="append",
        help="their references; may be repeated",
    )
    parser.add_argument(
        "--set",
        dest="sets",
        metavar="SET",
        action="append",
        help="a set instead of files: the name of one of the run's evaluation.sets, or '{name: N, source: "
        "F, references: [G]}'; may be repeated (default without --source: all sets of the run)",
    )
    add_search(parser)
    add_metrics(parser)
    add_paragraphs(parser)
    parser.add_argument("-o", "--output", metavar="FILE", type=new_file, help="write the translations to this file")


COMMANDS = {
    "evaluate": Command(
        summary="translate and score test sets (BLEU, chrF, TER ...): JSON, with signatures",
        usage="RUN [--source FILE --reference FILE | --set SET] [--metrics METRIC ...] [--beam N] [-o FILE]",
        add_arguments=add_evaluate,
        target="zeromt.evaluating.command:run",
        computes=True,
        group="use a model",
    ),
}
