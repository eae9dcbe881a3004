"""The command `zeromt import` and its arguments."""

from launcher.options.parser import Command, Parser, add_languages, add_new_folder
from launcher.options.values import existing, existing_file, existing_folder, whole


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


COMMANDS = {
    "import": Command(
        summary="make a run from weights trained elsewhere, to translate with it or to fine-tune it",
        usage="STATE.safetensors --preset NAME --tokenizer MODEL -o RUN [...] | --huggingface DIR -o RUN [...]",
        add_arguments=add_import,
        target="zeromt.importing.command:run",
        computes=True,
        group="use a model",
    ),
}
