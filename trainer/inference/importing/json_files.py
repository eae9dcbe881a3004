"""The JSON files of a checkpoint of Transformers."""

import json
from pathlib import Path
from typing import Any

from configs import UserError

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
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"--huggingface: {path} cannot be read: {error}; give a complete checkpoint") from error
