"""The arguments of translating and of scoring, and the settings of the search."""

import argparse
from collections.abc import Callable
from typing import Any

from launcher.options.parser import Parser, add_languages, add_plugins, add_raw_weights, add_run
from launcher.options.values import (
    existing,
    existing_file,
    input_file,
    number,
    one_of,
    other_file,
    output_file,
    pattern,
    processes,
    whole,
)


def add_translate(parser: Parser) -> None:
    """Arguments of `zeromt translate`."""
    _add_runs(parser)
    parser.add_argument("-i", "--input", metavar="FILE", type=input_file, help="one sentence a line (default: stdin)")
    parser.add_argument("-o", "--output", metavar="FILE", type=output_file, help="translations (default: stdout)")
    add_search(parser)
    parser.add_argument(
        "--n-best",
        metavar="K",
        type=whole(1, 256),
        default=1,
        help="translations per sentence, best first; at most the beam, or samples with --sample (default: 1)",
    )
    _add_setting(parser, "--batch-tokens", "N", whole(1, 2**31), "most padded source tokens of a batch, times the beam")
    parser.add_argument(
        "--prefix",
        metavar="FILE",
        type=existing_file,
        help="what each translation must begin with, one line per source",
    )
    parser.add_argument(
        "--score",
        action="store_true",
        help="score given translations: SOURCE TAB TRANSLATION in, LOG-PROBABILITY TAB SCORE out",
    )
    parser.add_argument(
        "--target", metavar="FILE", type=existing_file, help="the translations to score, if the input has sources alone"
    )
    parser.add_argument(
        "--alignment",
        metavar="FILE",
        type=other_file,
        help="for each translation write i-j, source and target word",
    )
    parser.add_argument(
        "--alignment-layer",
        metavar="L",
        type=whole(1, 1024),
        help="decoder layer whose attention aligns, from 1 (default: the middle one)",
    )
    parser.add_argument(
        "--attention", metavar="FILE", type=other_file, help="draw the attention of the first lines as a PNG"
    )
    parser.add_argument(
        "--placeholders",
        metavar="REGEX",
        type=pattern,
        help="copy what this finds by way of placeholders, for runs with that modifier, such as '\\d+([.,:]\\d+)*'",
    )
    parser.add_argument(
        "--processes",
        metavar="N",
        type=processes,
        default=1,
        help="processes that share the work; auto takes one per GPU, or per core without a GPU (default: 1)",
    )


def add_evaluate(parser: Parser) -> None:
    """Arguments of `zeromt evaluate`."""
    _add_runs(parser)
    parser.add_argument("--source", metavar="FILE", type=existing_file, help="sentences to translate")
    parser.add_argument(
        "--reference", metavar="FILE", type=existing_file, action="append", help="their references; repeat for several"
    )
    parser.add_argument(
        "--set",
        dest="sets",
        metavar="SET",
        action="append",
        help="in place of files: a set of the run's evaluation.sets by name, or one such as '{name: N, sacrebleu: "
        "wmt14/full}'; again for another (default without --source: all of the run's)",
    )
    add_search(parser)
    add_metrics(parser)
    parser.add_argument("-o", "--output", metavar="FILE", type=output_file, help="write the translations here too")


def _add_runs(parser: Parser) -> None:
    add_run(parser)
    parser.add_argument(
        "--ensemble",
        metavar="RUN",
        type=existing,
        nargs="+",
        default=[],
        help="further runs with the same tokenizer, whose probabilities are averaged with those of RUN",
    )
    add_raw_weights(parser)
    add_precision(parser)
    add_languages(parser)
    add_plugins(parser)


def add_metrics(parser: Parser) -> None:
    """What translations are scored by."""
    parser.add_argument(
        "--metrics",
        metavar="METRIC",
        nargs="+",
        help="such as bleu, chrf, ter or '{kind: chrf, word_order: 2}' (default: the run's evaluation.metrics)",
    )
    parser.add_argument("-lc", "--lowercase", action="store_true", help="ignore case, in the metrics that can")
    parser.add_argument(
        "--tokenizer",
        metavar="NAME",
        help="BLEU's tokeniser, such as 13a, zh or ja-mecab; auto: by the target language (default: the run's)",
    )


def add_precision(parser: Parser) -> None:
    """What number format to translate in."""
    parser.add_argument(
        "--precision",
        metavar="P",
        type=one_of("auto", "fp32", "bf16", "fp16"),
        help="number format: auto, fp32, bf16 or fp16 (default: fp32 on CPUs, the run's on GPUs)",
    )


def add_search(parser: Parser) -> None:
    """What replaces fields of the run's `evaluation.search`; it arrives as one mapping, `search`."""
    parser.set_defaults(search={})
    _add_setting(parser, "--beam", "N", whole(1, 256), "hypotheses kept; 1 is greedy")
    _add_setting(
        parser,
        "--patience",
        "P",
        number(0),
        "stop when P x beam translations are complete; 0: when no open one can win",
    )
    _add_setting(parser, "--length-penalty", "A", number(0), "alpha of the length penalty")
    _add_setting(parser, "--length-penalty-kind", "KIND", one_of("gnmt", "mean"), "gnmt (Wu et al., 2016) or mean")
    _add_setting(parser, "--min-length-ratio", "R", number(0), "shortest: R times the pieces of the source ...")
    _add_setting(parser, "--min-length-extra", "N", whole(0, 2**31), "... plus N")
    _add_setting(
        parser, "--max-length-ratio", "R", number(0, is_open=True), "longest: R times the pieces of the source ..."
    )
    _add_setting(parser, "--max-length-extra", "N", whole(0, 2**31), "... plus N")
    _add_setting(parser, "--no-repeat-ngram", "N", whole(0, 2**31), "no sequence of N pieces twice; 0 allows all")
    parser.add_argument(
        "--sample",
        action=_Setting,
        nargs=0,
        default=argparse.SUPPRESS,
        help="draw each piece at random: by the run's sampler, or as --sampler truncated",
    )
    _add_setting(parser, "--sampler", "SAMPLER", str, "draw by this sampler: a kind, or '{kind: KIND, field: value}'")
    _add_setting(parser, "--temperature", "T", number(0, is_open=True), "of sampling; below 1 is safer, above 1 bolder")
    _add_setting(parser, "--top-k", "K", whole(0, 2**31), "sample from the K most probable pieces; 0 takes all")
    _add_setting(
        parser, "--top-p", "P", number(0, 1, is_open=True), "sample from the fewest pieces with probability P together"
    )
    _add_setting(parser, "--seed", "N", whole(0, 2**63), "of sampling")


class _Setting(argparse.Action):
    """Puts a field of the search section into `search`; without an argument, the field is true."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        value = True if self.nargs == 0 else values
        namespace.search = {**namespace.search, self.dest: value}


def _add_setting(parser: Parser, option: str, metavar: str, type_: Callable[[str], Any], what: str) -> None:
    shown = f"{what} (default: the run's)"
    parser.add_argument(option, metavar=metavar, type=type_, action=_Setting, default=argparse.SUPPRESS, help=shown)
