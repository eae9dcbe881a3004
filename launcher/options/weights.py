"""Arguments of `zeromt export`, `zeromt average` and `zeromt import`."""

from launcher.options.parser import Parser, add_languages, add_new_folder, add_plugins, add_raw_weights, add_run
from launcher.options.values import existing, existing_file, existing_folder, whole

EXPORT_FORMATS = ("safetensors", "huggingface", "ctranslate2")
EXPORT_DTYPES = ("float32", "float16", "bfloat16")
EXPORT_QUANTIZATIONS = (
    "float32", "float16", "bfloat16", "int8", "int8_float32", "int8_float16", "int8_bfloat16", "int16",
)  # fmt: skip


def add_export(parser: Parser) -> None:
    """Arguments of `zeromt export`."""
    add_run(parser)
    parser.add_argument("--format", choices=EXPORT_FORMATS, required=True, help="which program will load it")
    add_new_folder(parser)
    parser.add_argument(
        "--dtype",
        choices=EXPORT_DTYPES,
        help="data type of the weights, for safetensors and huggingface (default: float32)",
    )
    parser.add_argument(
        "--quantization",
        choices=EXPORT_QUANTIZATIONS,
        help="quantization for ctranslate2 (default: float32); prints the change in BLEU if there is text to translate",
    )
    parser.add_argument(
        "--source",
        metavar="FILE",
        type=existing_file,
        help="sentences for the check and for BLEU (default: the run's validation set, if it is available)",
    )
    parser.add_argument("--reference", metavar="FILE", type=existing_file, help="references of --source")
    add_raw_weights(parser)
    add_plugins(parser)


def add_average(parser: Parser) -> None:
    """Arguments of `zeromt average`."""
    parser.add_argument("run", metavar="RUN", type=existing_folder, help="a run's folder")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--last", metavar="K", type=whole(1, 10_000), help="average the newest K complete checkpoints")
    which.add_argument(
        "--best", metavar="K", type=whole(1, 10_000), help="average the K checkpoints with the best validation scores"
    )
    add_raw_weights(parser)
    add_plugins(parser)
    add_new_folder(parser)


def add_import(parser: Parser) -> None:
    """Arguments of `zeromt import`."""
    parser.add_argument(
        "weights", metavar="STATE", nargs="?", type=existing_file, help="a safetensors file of a reference system"
    )
    parser.add_argument("--preset", metavar="NAME", help="preset of the reference system that the weights are from")
    parser.add_argument(
        "--tokenizer", metavar="MODEL", type=existing, help="a SentencePiece model, or a folder with a tokenizer"
    )
    parser.add_argument(
        "--num-heads", metavar="N", type=whole(1, 1024), help="number of attention heads (default: the preset's)"
    )
    parser.add_argument(
        "--huggingface", metavar="DIR", type=existing_folder, help="import this Marian, M2M100 or NLLB checkpoint"
    )
    add_languages(parser)
    add_new_folder(parser)
