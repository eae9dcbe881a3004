"""The arguments of every command, each checked as far as that needs no configuration."""

import argparse
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

EXPORT_FORMATS = ("safetensors", "huggingface", "ctranslate2")
EXPORT_DTYPES = ("float32", "float16", "bfloat16")
EXPORT_QUANTIZATIONS = (
    "float32", "float16", "bfloat16", "int8", "int8_float32", "int8_float16", "int8_bfloat16", "int16",
)  # fmt: skip


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line and exit code 2."""

    def error(self, message: str) -> NoReturn:
        """Say in one line what is wrong and leave with exit code 2."""
        self.exit(2, f"zeromt: error: {' '.join(message.split())}; see `{self.prog} --help`\n")


def add_config(parser: Parser) -> None:
    """CONFIG and the overrides behind it."""
    parser.add_argument("config", metavar="CONFIG", help="a YAML file, or the name of a shipped run")
    parser.add_argument(
        "overrides",
        metavar="section.key=value",
        nargs="*",
        default=[],  # without it argparse calls the overrides required when CONFIG is missing
        help="settings that replace those of CONFIG, such as optimizer.lr=5e-4",
    )


def add_prepare(parser: Parser) -> None:
    """Arguments of `zeromt prepare`."""
    add_config(parser)
    share = parser.add_mutually_exclusive_group()
    share.add_argument(
        "--part",
        metavar="I/N",
        type=_share,
        help="encode only share I of N, on one of N machines that share the file system; --merge joins the shares",
    )
    share.add_argument("--merge", action="store_true", help="make the dataset of shares that are all encoded")


def add_train(parser: Parser) -> None:
    """Arguments of `zeromt train`."""
    add_config(parser)
    start = parser.add_mutually_exclusive_group()
    start.add_argument(
        "--fresh",
        action="store_true",
        help="begin at step 0; a run that is there is renamed to NAME.replaced-DATE-TIME, never deleted",
    )
    start.add_argument(
        "--reset",
        metavar="WHAT",
        type=_reset,
        help="data, optimizer or data,optimizer: begin these anew from the checkpoint's weights, as for fine-tuning",
    )


def add_launch_local(parser: Parser) -> None:
    """Arguments of `zeromt launch local`."""
    add_train(parser)
    parser.add_argument(
        "--nproc",
        metavar="N",
        type=_processes,
        help="processes; auto (the default) takes one for each GPU, or for each core where there is no GPU, "
        "at most stream.micro_batches",
    )
    parser.add_argument(
        "--max-restarts",
        metavar="R",
        type=_whole(0, 1_000_000),
        default=3,
        help="when a process fails, start again from the last checkpoint, at most so often before another checkpoint "
        "is complete (default: 3)",
    )


def add_translate(parser: Parser) -> None:
    """Arguments of `zeromt translate`."""
    _add_runs(parser)
    parser.add_argument("-i", "--input", metavar="FILE", type=_input_file, help="one sentence a line (default: stdin)")
    parser.add_argument("-o", "--output", metavar="FILE", type=_output_file, help="translations (default: stdout)")
    _add_search(parser)
    parser.add_argument(
        "--n-best",
        metavar="K",
        type=_whole(1, 256),
        default=1,
        help="translations of every sentence, best first; at most the beam, or so many samples (default: 1)",
    )
    _add_setting(parser, "--batch-tokens", "N", _whole(1, 2**31), "padded source tokens of a batch, times the beam")
    parser.add_argument(
        "--prefix", metavar="FILE", type=_existing_file, help="what each translation begins with, one line for each"
    )
    parser.add_argument(
        "--score",
        action="store_true",
        help="score given translations: SOURCE TAB TRANSLATION in, LOG-PROBABILITY TAB SCORE out",
    )
    parser.add_argument(
        "--target", metavar="FILE", type=_existing_file, help="the translations to score, where the input has sources"
    )
    parser.add_argument(
        "--alignment",
        metavar="FILE",
        type=_other_file,
        help="write i-j, source and target word, for each translation",
    )
    parser.add_argument(
        "--alignment-layer",
        metavar="L",
        type=_whole(1, 1024),
        help="decoder layer whose attention aligns, from 1 (default: the middle one)",
    )
    parser.add_argument(
        "--attention", metavar="FILE", type=_other_file, help="draw the attention of the first lines as a PNG"
    )
    parser.add_argument(
        "--processes",
        metavar="N",
        type=_processes,
        default=1,
        help="processes that share the work; auto takes one for each GPU, or core where there is none (default: 1)",
    )


def add_evaluate(parser: Parser) -> None:
    """Arguments of `zeromt evaluate`."""
    _add_runs(parser)
    parser.add_argument("--source", metavar="FILE", type=_existing_file, required=True, help="sentences to translate")
    parser.add_argument("--reference", metavar="FILE", type=_existing_file, required=True, help="their references")
    _add_search(parser)
    parser.add_argument("--tokenizer", metavar="NAME", help="sacreBLEU's tokeniser, such as 13a, zh or ja-mecab")
    parser.add_argument("-o", "--output", metavar="FILE", type=_output_file, help="write the translations here too")


def add_export(parser: Parser) -> None:
    """Arguments of `zeromt export`."""
    _add_run(parser)
    parser.add_argument("--format", choices=EXPORT_FORMATS, required=True, help="who is to load it")
    _add_new_folder(parser)
    parser.add_argument(
        "--dtype",
        choices=EXPORT_DTYPES,
        help="of the weights that are stored, for safetensors and huggingface (default: float32)",
    )
    parser.add_argument(
        "--quantization",
        choices=EXPORT_QUANTIZATIONS,
        help="for ctranslate2 (default: float32); the change in BLEU is printed where there is text to translate",
    )
    parser.add_argument(
        "--source",
        metavar="FILE",
        type=_existing_file,
        help="sentences for the check and for BLEU (default: the run's validation set, where it is at hand)",
    )
    parser.add_argument("--reference", metavar="FILE", type=_existing_file, help="their references")
    _add_raw_weights(parser)


def add_average(parser: Parser) -> None:
    """Arguments of `zeromt average`."""
    parser.add_argument("run", metavar="RUN", type=_existing_folder, help="a run's folder")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--last", metavar="K", type=_whole(1, 10_000), help="the newest K whole checkpoints")
    which.add_argument("--best", metavar="K", type=_whole(1, 10_000), help="the K of the best validation BLEU")
    _add_raw_weights(parser)
    _add_new_folder(parser)


def add_import(parser: Parser) -> None:
    """Arguments of `zeromt import`."""
    parser.add_argument(
        "weights", metavar="STATE", nargs="?", type=_existing_file, help="a safetensors file of a reference system"
    )
    parser.add_argument("--preset", metavar="NAME", help="the reference system that the weights are of")
    parser.add_argument(
        "--tokenizer", metavar="MODEL", type=_existing, help="a SentencePiece model, or a folder with a tokenizer"
    )
    parser.add_argument(
        "--num-heads", metavar="N", type=_whole(1, 1024), help="of its attention (default: the preset's)"
    )
    parser.add_argument(
        "--huggingface", metavar="DIR", type=_existing_folder, help="a Marian, M2M100 or NLLB checkpoint instead"
    )
    _add_languages(parser)
    _add_new_folder(parser)


def add_inspect(parser: Parser) -> None:
    """Arguments of `zeromt inspect`."""
    parser.add_argument(
        "path", metavar="PATH", type=_existing_or_url, help="a dataset, a checkpoint or a run; or a dataset's URL"
    )


def add_stop(parser: Parser) -> None:
    """Arguments of `zeromt stop`."""
    _add_run_folder(parser)
    parser.add_argument(
        "--no-wait", dest="wait", action="store_false", help="only ask; do not wait until the run has stopped"
    )


def add_status(parser: Parser) -> None:
    """Arguments of `zeromt status`."""
    _add_run_folder(parser)
    parser.add_argument("--json", dest="as_json", action="store_true", help="one JSON object in place of lines")


def _add_run_folder(parser: Parser) -> None:
    parser.add_argument("run", metavar="RUN", type=_existing_folder, help="a run's folder")


def _add_run(parser: Parser) -> None:
    parser.add_argument("run", metavar="RUN", type=_existing, help="a run's folder, or one checkpoint in it")


def _add_runs(parser: Parser) -> None:
    _add_run(parser)
    parser.add_argument(
        "--ensemble",
        metavar="RUN",
        type=_existing,
        nargs="+",
        default=[],
        help="further runs with the same tokenizer, whose probabilities are averaged with those of RUN",
    )
    _add_raw_weights(parser)
    _add_languages(parser)


def _add_languages(parser: Parser) -> None:
    for side in ("source", "target"):
        parser.add_argument(
            f"--{side}-language",
            metavar="L",
            help="such as eng_Latn, for models with language tags on both sides, as NLLB (default: the run's)",
        )


def _add_raw_weights(parser: Parser) -> None:
    parser.add_argument(
        "--raw-weights",
        action="store_true",
        help="the weights as the last update left them, not their moving average (training.ema_decay)",
    )


def _add_new_folder(parser: Parser) -> None:
    parser.add_argument("-o", "--output", metavar="DIR", required=True, help="a new or an empty folder")


def _add_search(parser: Parser) -> None:
    """What replaces fields of the run's `evaluation.search`; it arrives as one mapping, `search`."""
    parser.set_defaults(search={})
    _add_setting(parser, "--beam", "N", _whole(1, 256), "hypotheses kept; 1 is greedy")
    _add_setting(parser, "--length-penalty", "A", _number(0), "alpha of the length penalty")
    _add_setting(parser, "--length-penalty-kind", "KIND", _one_of("gnmt", "mean"), "gnmt (Wu et al., 2016) or mean")
    _add_setting(parser, "--min-length-ratio", "R", _number(0), "shortest: R times the pieces of the source ...")
    _add_setting(parser, "--min-length-extra", "N", _whole(0, 2**31), "... plus so many")
    _add_setting(
        parser, "--max-length-ratio", "R", _number(0, is_open=True), "longest: R times the pieces of the source ..."
    )
    _add_setting(parser, "--max-length-extra", "N", _whole(0, 2**31), "... plus so many")
    _add_setting(parser, "--no-repeat-ngram", "N", _whole(0, 2**31), "no N pieces in one order twice; 0 allows all")
    parser.add_argument(
        "--sample",
        action=_Setting,
        nargs=0,
        default=argparse.SUPPRESS,
        help="draw each piece at random",
    )
    _add_setting(parser, "--temperature", "T", _number(0, is_open=True), "of sampling: below 1 is safer, above bolder")
    _add_setting(parser, "--top-k", "K", _whole(0, 2**31), "sample from the K most probable pieces; 0 takes all")
    _add_setting(parser, "--top-p", "P", _number(0, 1, is_open=True), "sample from the fewest that have P together")
    _add_setting(parser, "--seed", "N", _whole(0, 2**63), "of sampling")


class _Setting(argparse.Action):
    """Puts a field of the search section into `search`; without an argument, the field is true."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        value = True if self.nargs == 0 else values
        namespace.search = {**namespace.search, self.dest: value}


def _add_setting(parser: Parser, option: str, metavar: str, type_: Callable[[str], Any], what: str) -> None:
    shown = f"{what} (default: the run's)"
    parser.add_argument(option, metavar=metavar, type=type_, action=_Setting, default=argparse.SUPPRESS, help=shown)


def _one_of(*names: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in names:
            raise argparse.ArgumentTypeError(f"{text!r}; allowed is {' or '.join(names)}")
        return text

    return parse


def _whole(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text!r}; allowed is a whole number from {low} to {high}")
        return value

    return parse


def _share(text: str) -> tuple[int, int]:
    number, slash, of = text.partition("/")
    if slash and number.isascii() and of.isascii() and number.isdigit() and of.isdigit():
        share = int(number), int(of)
        if 1 <= share[0] <= share[1]:
            return share
    raise argparse.ArgumentTypeError(f"{text!r}; allowed is I/N with I from 1 to N, such as 3/16")


def _reset(text: str) -> str:
    parts = text.split(",")
    if not set(parts) <= {"data", "optimizer"} or len(set(parts)) < len(parts):
        raise argparse.ArgumentTypeError(f"{text!r}; allowed is data, optimizer or data,optimizer")
    return ",".join(sorted(parts))


def _processes(text: str) -> int | None:
    """A number of processes; None stands for auto."""
    if text == "auto":
        return None
    try:
        return _whole(1, 65_536)(text)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{error}, or auto") from error


def _number(low: float, high: float = math.inf, *, is_open: bool = False) -> Callable[[str], float]:
    """A finite number from `low`, or above it, to `high`."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and low <= value <= high and not (is_open and value == low)):
            begin = f"above {low:g}" if is_open else f"from {low:g}"
            end = f" to {high:g}" if math.isfinite(high) else ""
            raise argparse.ArgumentTypeError(f"{text!r}; allowed is a finite number {begin}{end}")
        return value

    return parse


def _existing_or_url(text: str) -> str:
    return text if "://" in text else _existing(text)


def _existing(text: str) -> str:
    if not text or not Path(text).exists():
        raise argparse.ArgumentTypeError(f"{text!r}: no such file or folder; allowed is one that exists")
    return text


def _existing_folder(text: str) -> str:
    if not text or not Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"{text!r}: no such folder; allowed is a run's folder")
    return text


def _input_file(text: str) -> str | None:
    """A file to read; None stands for stdin, also written as `-`."""
    return None if text == "-" else _existing_file(text)


def _existing_file(text: str) -> str:
    """A file to read, which may be a pipe."""
    if not text or not Path(text).exists() or Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"{text!r}: no such file; allowed is a file that exists")
    return text


def _output_file(text: str) -> str | None:
    """A file to write; None stands for stdout, also written as `-`."""
    if text == "-":
        return None
    if not text or Path(text).is_dir() or not Path(text).absolute().parent.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r}; allowed is a file in a folder that exists")
    return text


def _other_file(text: str) -> str:
    """A file to write beside the output."""
    if _output_file(text) is None:
        raise argparse.ArgumentTypeError(f"{text!r}; allowed is a file in a folder that exists")
    return text
