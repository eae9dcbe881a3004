"""The command `zeromt export` and its arguments."""

from launcher.options.parser import Command, Parser, add_new_folder, add_plugins, add_raw_weights, add_run
from launcher.options.values import existing_file
from zeromt.translator.arguments import QUANTIZATIONS

FORMATS = ("huggingface", "ctranslate2")


def add_export(parser: Parser) -> None:
    """Arguments of `zeromt export`."""
    add_run(parser)
    parser.add_argument("--format", choices=FORMATS, required=True, help="which program will load it")
    add_new_folder(parser)
    parser.add_argument(
        "--quantization",
        choices=QUANTIZATIONS,
        help="how weights are stored, in huggingface as floats alone (default: float32); with ctranslate2 the change "
        "in BLEU is printed, if there is text to translate",
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


COMMANDS = {
    "export": Command(
        summary="write the model for Hugging Face Transformers or CTranslate2, and check it",
        usage="RUN --format FORMAT -o DIR [--quantization Q] [--source FILE --reference FILE]",
        add_arguments=add_export,
        target="zeromt.exporting.command:run",
        computes=True,
        group="use a model",
    ),
}
