"""The command `zeromt translate` and its arguments; the options of search, which others have too."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from launcher.options.parser import Command, Parser, add_languages, add_plugins, add_raw_weights, add_run
from launcher.options.values import (
    existing,
    matching,
    new_file,
    new_path,
    number,
    part,
    processes,
    whole,
)

_FORMATS = ("float32", "float16", "bfloat16", "int8", "int8_float32", "int8_float16", "int8_bfloat16", "int16")


def is_corpus(folder: str) -> bool:
    """Whether a folder is one in which a corpus is translated."""
    return (Path(folder) / "job.json").is_file()


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
        help="of --candidates, take the one most like all of them: minimum Bayes risk by sentence chrF or BLEU",
    )
    _add_setting(
        parser, "--batch-tokens", "N", whole(1, 2**31), "maximum of padded source tokens times the beam in a batch"
    )
    parser.add_argument(
        "--prefix",
        action="store_true",
        help="begin translations as given: reads SOURCE TAB BEGINNING, which may be empty",
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
        "NAME.scores.txt lie beside it",
    )


def _or_standard(parse: Callable[[str], str]) -> Callable[[str], str | None]:
    """A parser to which `-` is None, for standard input or output."""
    return lambda text: None if text == "-" else parse(text)


def add_runs(parser: Parser) -> None:
    """RUN, an ensemble with it, and how their weights are read."""
    add_run(parser)
    parser.add_argument(
        "--ensemble",
        metavar="RUN",
        type=existing,
        nargs="+",
        default=[],
        help="further runs with the same tokenizer; their probabilities are averaged with RUN's",
    )
    add_raw_weights(parser)
    add_precision(parser)
    parser.add_argument(
        "--quantization",
        choices=_FORMATS,
        help="translate by RUN's export to CTranslate2 with weights in this format: quicker on CPUs",
    )
    add_languages(parser)
    add_plugins(parser)


def add_processes(parser: Parser) -> None:
    """`--processes`: how many hold the models."""
    parser.add_argument(
        "--processes",
        metavar="N",
        type=processes,
        default=1,
        help="number of processes; auto takes one per GPU, or per core without a GPU (default: 1)",
    )


def add_paragraphs(parser: Parser) -> None:
    """`--paragraphs`: lines of several sentences."""
    parser.add_argument(
        "--paragraphs",
        action="store_true",
        help="translate each sentence of a line by itself, and join them again: for models that know sentences alone",
    )


def add_metrics(parser: Parser) -> None:
    """Options of the metrics."""
    parser.add_argument(
        "--metrics",
        metavar="METRIC",
        nargs="+",
        help="metrics such as bleu, chrf, ter, '{kind: chrf, word_order: 2}' or '{name: comet, command: python "
        "comet.py}' (default: the run's evaluation.metrics)",
    )
    parser.add_argument("-lc", "--lowercase", action="store_true", help="ignore case, in the metrics that support it")
    parser.add_argument(
        "--tokenizer",
        metavar="NAME",
        help="BLEU's tokenizer, such as 13a, zh or ja-mecab; auto: by the target language (default: the run's)",
    )


def add_precision(parser: Parser) -> None:
    """`--precision`: the number format to translate in."""
    parser.add_argument(
        "--precision",
        metavar="P",
        type=matching("auto|fp32|bf16|fp16", "auto, fp32, bf16 or fp16"),
        help="number format: auto, fp32, bf16 or fp16 (default: fp32 on CPUs, the run's on GPUs)",
    )


def add_search(parser: Parser) -> None:
    """Options that replace fields of the run's `evaluation.search`; the parsed value is one mapping, `search`."""
    parser.set_defaults(search={})
    _add_setting(parser, "--beam", "N", whole(1, 256), "beam size; 1 is greedy search")
    _add_setting(
        parser,
        "--patience",
        "P",
        number(0),
        "stop when P x beam translations are complete, or no open one can win; 0 uses only the second rule",
    )
    _add_setting(parser, "--length-penalty", "A", number(0), "alpha of the length penalty")
    _add_setting(
        parser,
        "--length-penalty-kind",
        "KIND",
        matching("gnmt|mean", "gnmt or mean"),
        "gnmt divides by ((5 + length) / 6)^alpha, mean by length^alpha",
    )
    _add_setting(parser, "--min-length-ratio", "R", number(0), "minimum length: R times the source length ...")
    _add_setting(parser, "--min-length-extra", "N", whole(0, 2**31), "... plus N pieces")
    _add_setting(
        parser, "--max-length-ratio", "R", number(0, is_open=True), "maximum length: R times the source length ..."
    )
    _add_setting(parser, "--max-length-extra", "N", whole(0, 2**31), "... plus N pieces")
    _add_setting(
        parser, "--no-repeat-ngram", "N", whole(0, 2**31), "never repeat a sequence of N pieces; 0 allows repetition"
    )
    parser.add_argument(
        "--sample",
        action=_Setting,
        nargs=0,
        default=argparse.SUPPRESS,
        help="sample each piece instead of searching, with the run's sampler or, if it has none, `truncated`",
    )
    _add_setting(parser, "--sampler", "SAMPLER", str, "sample with this: a kind, or '{kind: KIND, field: value}'")
    _add_setting(
        parser,
        "--temperature",
        "T",
        number(0, is_open=True),
        "temperature of sampling: below 1 favours probable pieces, above 1 improbable ones",
    )
    _add_setting(parser, "--top-k", "K", whole(0, 2**31), "sample from the K most probable pieces; 0: from all")
    _add_setting(
        parser,
        "--top-p",
        "P",
        number(0, 1, is_open=True),
        "sample from the smallest set of pieces whose probabilities sum to P",
    )
    _add_setting(
        parser,
        "--epsilon",
        "E",
        number(0, 1),
        "sample from the pieces whose probability is at least E; 0: from all",
    )
    _add_setting(parser, "--seed", "N", whole(0, 2**63), "seed of sampling")


class _Setting(argparse.Action):
    """Stores the value as a field of `search`; an option without an argument stores true."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        value = True if self.nargs == 0 else values
        namespace.search = {**namespace.search, self.dest: value}


def _add_setting(parser: Parser, option: str, metavar: str, type_: Callable[[str], Any], what: str) -> None:
    shown = f"{what} (default: the run's)"
    parser.add_argument(option, metavar=metavar, type=type_, action=_Setting, default=argparse.SUPPRESS, help=shown)


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
