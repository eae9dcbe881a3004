"""The JSON files of a checkpoint of Transformers."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from configs import UserError
from configs.process.files import inside

CONFIG = "config.json"
GENERATION_CONFIG = "generation_config.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
TOKENIZER = "tokenizer.json"


def read_json(path: Path) -> Any:
    """A JSON file.

    Raises:
        UserError: it is missing, or not valid JSON.
    """
    try:
        return inside.read_json(path)  # Hugging Face's cache consists of links
    except (OSError, ValueError) as error:
        raise UserError(f"--huggingface: {path} cannot be read: {error}; give a complete checkpoint") from error


@contextlib.contextmanager
def taken_apart(path: Path) -> Iterator[None]:
    """Names the file where its values are not of the types that Transformers writes.

    Raises:
        UserError: the block found such a value.
    """
    try:
        yield
    except (AttributeError, LookupError, OverflowError, TypeError, ValueError) as error:
        raise UserError(
            f"--huggingface: {path} is not as Transformers writes it: {error}; give a complete checkpoint"
        ) from error
