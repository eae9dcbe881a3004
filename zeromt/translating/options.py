"""The command `zeromt translate` and its arguments."""

from collections.abc import Callable

from launcher.options.parser import Command, Parser, add_replace
from launcher.options.values import existing, new_file, new_path, part, whole
from zeromt.translator.arguments import add_paragraphs, add_processes, add_runs, add_search, add_setting

STATUS = ("job.json", "zeromt.translating.corpus:status")
"""What `zeromt status` calls for a folder with this file."""


def add_translate(parser: Parser) -> None:
    """Arguments of `zeromt translate`."""
    add_runs(parser)
    parser.add_argument("sentences", metavar="SENTENCE", nargs="*", help="to translate, instead of lines")
    parser.add_argument(
        "-i",
        "--input",
        metavar="FILE",
        type=_or_standard(existing),
        action="append",
        help="one sentence per line (default: stdin); in parts, may be repeated",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        type=_or_standard(new_path),
        help="translations (default: stdout); in parts, a folder",
    )
    _add_corpus(parser)
    add_search(parser)
    parser.add_argument(
        "--n-best",
        metavar="K",
        type=whole(1, 256),
        default=1,
        help="translations per sentence, best first; the beam has at least as many, or they are samples with --sample "
        "(default: 1)",
    )
    parser.add_argument(
        "--candidates", metavar="N", type=whole(1, 1024), default=1, help="translations to choose from (default: 1)"
    )
    parser.add_argument(
        "--mbr",
        choices=("chrf", "bleu"),
        help="of --candidates, take the one most like all the others: minimum Bayes risk by sentence chrF or BLEU",
    )
    add_setting(
        parser, "--batch-tokens", "N", whole(1, 2**31), "maximum of padded source tokens times the beam in a batch"
    )
    parser.add_argument(
        "--score",
        action="store_true",
        help="score given translations: reads SOURCE TAB TRANSLATION, writes LOG-PROBABILITY TAB SCORE",
    )
    add_paragraphs(parser)
    add_processes(parser)


def _add_corpus(parser: Parser) -> None:
    """Options for a corpus; without `--part` and `--merge` they have no meaning."""
    group = parser.add_argument_group("a corpus in parts")
    which = group.add_mutually_exclusive_group()
    parser.add_argument(
        "--part",
        group=which,
        metavar="I/N",
        type=part,
        help="translate only part I of N, on one of N machines, into the folder of -o; what is there already stays. "
        "`slurm` takes I and N from a job array",
    )
    parser.add_argument(
        "--merge", group=which, action="store_true", help="join the parts, once all are ready, and check every line"
    )
    parser.add_argument(
        "--chunk-lines",
        group=group,
        metavar="N",
        type=whole(1, 1 << 20),
        help="lines in a chunk, which is lost as a whole when a part is killed (default: 2048)",
    )
    parser.add_argument(
        "--choose",
        group=group,
        metavar="N",
        type=whole(1, 1024, best="best", all="all"),
        help="with --merge: candidates of a line that are written, best first: best, all or a number (default: best)",
    )
    parser.add_argument(
        "--to",
        group=group,
        metavar="FILE",
        type=new_file,
        help="with --merge: where the translations go (default: translations.txt in -o); NAME.source.txt and "
        "NAME.scores.txt lie next to it",
    )
    add_replace(parser, "a folder of another input or other settings")


def _or_standard(parse: Callable[[str], str]) -> Callable[[str], str | None]:
    """A parser to which `-` is None, for standard input or output."""
    return lambda text: None if text == "-" else parse(text)


COMMANDS = {
    "translate": Command(
        summary="translate lines, by default from stdin to stdout",
        usage="RUN [SENTENCE ... | -i FILE] [-o FILE] [--beam N] [--n-best K] [--processes N] [--ensemble RUN ...] "
        "[--score] [...] | RUN -i FILE -o OUT {--part I/N | --merge} [--candidates N] [...]",
        add_arguments=add_translate,
        target="zeromt.translating.command:run",
        computes=True,
        group="use a model",
    ),
}
