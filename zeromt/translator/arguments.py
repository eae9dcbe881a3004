"""Arguments that several tools have: runs, their precision and languages, the search, metrics, processes."""

import argparse
from collections.abc import Callable
from typing import Any

from launcher.options.parser import Parser, add_languages, add_plugins, add_raw_weights, add_run
from launcher.options.values import existing, matching, number, processes, whole

QUANTIZATIONS = ("float32", "float16", "bfloat16", "int8", "int8_float32", "int8_float16", "int8_bfloat16", "int16")


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
        choices=QUANTIZATIONS,
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
        "score_comet.py}' (default: the run's evaluation.metrics)",
    )
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
    add_setting(parser, "--beam", "N", whole(1, 256), "beam size; 1 is greedy search")
    add_setting(
        parser,
        "--patience",
        "P",
        number(0),
        "stop when P x beam translations are complete, or no open one can win; 0 uses only the second rule",
    )
    add_setting(parser, "--length-penalty", "A", number(0), "alpha of the length penalty")
    add_setting(
        parser,
        "--length-penalty-kind",
        "KIND",
        matching("gnmt|mean", "gnmt or mean"),
        "gnmt divides by ((5 + length) / 6)^alpha, mean by length^alpha",
    )
    add_setting(parser, "--min-length-ratio", "R", number(0), "minimum length: R times the source length ...")
    add_setting(parser, "--min-length-extra", "N", whole(0, 2**31), "... plus N pieces")
    add_setting(
        parser, "--max-length-ratio", "R", number(0, is_open=True), "maximum length: R times the source length ..."
    )
    add_setting(parser, "--max-length-extra", "N", whole(0, 2**31), "... plus N pieces")
    add_setting(
        parser, "--no-repeat-ngram", "N", whole(0, 2**31), "never repeat a sequence of N pieces; 0 allows repetition"
    )
    parser.add_argument(
        "--sample",
        action=_Setting,
        nargs=0,
        default=argparse.SUPPRESS,
        help="sample each piece instead of searching, with the run's sampler or, if it has none, `truncated`",
    )
    add_setting(parser, "--sampler", "SAMPLER", str, "sample with this: a kind, or '{kind: KIND, field: value}'")
    add_setting(
        parser,
        "--temperature",
        "T",
        number(0, is_open=True),
        "temperature of sampling: below 1 favours probable pieces, above 1 improbable ones",
    )
    add_setting(parser, "--top-k", "K", whole(0, 2**31), "sample from the K most probable pieces; 0: from all")
    add_setting(
        parser,
        "--top-p",
        "P",
        number(0, 1, is_open=True),
        "sample from the smallest set of pieces whose probabilities sum to P",
    )
    add_setting(
        parser,
        "--epsilon",
        "E",
        number(0, 1),
        "sample from the pieces whose probability is at least E; 0: from all",
    )
    add_setting(parser, "--seed", "N", whole(0, 2**63), "seed of sampling")


class _Setting(argparse.Action):
    """Stores the value as a field of `search`; an option without an argument stores true."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        value = True if self.nargs == 0 else values
        namespace.search = {**namespace.search, self.dest: value}


def add_setting(parser: Parser, option: str, metavar: str, type_: Callable[[str], Any], what: str) -> None:
    """An option that sets a field of `search`."""
    shown = f"{what} (default: the run's)"
    parser.add_argument(option, metavar=metavar, type=type_, action=_Setting, default=argparse.SUPPRESS, help=shown)
