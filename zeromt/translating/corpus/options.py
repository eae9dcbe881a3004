"""The options of `zeromt translate` that translate a corpus in parts."""

from pathlib import Path

from launcher.options.parser import Parser
from launcher.options.values import existing_file, new_file, part, whole

JOB_FILE = "job.json"
"""What OUT has from its first part on."""


def is_corpus(folder: str) -> bool:
    """Whether a folder is one in which a corpus is translated."""
    return (Path(folder) / JOB_FILE).is_file()


def add_corpus(parser: Parser) -> None:
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
        "--input-list",
        group=group,
        metavar="FILE",
        type=existing_file,
        help="a file that names the input's files, one a line",
    )
    parser.add_argument(
        "--engine",
        group=group,
        metavar="FILE",
        type=existing_file,
        help="in RUN's place: a YAML file with `kind` and fields of what translates: a run, or its export",
    )
    parser.add_argument(
        "--chunk-lines",
        group=group,
        metavar="N",
        type=whole(1, 1 << 20),
        default=2048,
        help="lines in a chunk, which is lost as a whole when a part is killed (default: 2048)",
    )
    parser.add_argument(
        "--choose",
        group=group,
        metavar="N",
        type=whole(1, 1024, best="best", all="all"),
        default="best",
        help="with --merge: candidates of a line that are written, best first: best, all or a number (default: best)",
    )
    parser.add_argument(
        "--to",
        group=group,
        metavar="FILE",
        type=new_file,
        help="with --merge: where the translations go; .zst is compressed (default: translations.txt in -o); "
        "NAME.source.txt and NAME.scores.txt lie beside it",
    )
