"""Scores of a dataset's pairs: two files for each, beside the shards and not in the index.

`score-NAME.npy` has a number for each pair, `score-NAME.json`, written last, what it is. So a dataset keeps its
fingerprint when it gets a score.
"""

import dataclasses
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from configs.process.files.inside import write_text
from data_pipeline.errors import DataError
from data_pipeline.prepared.index import STRICT, Count, FileEntry, describe_file, write_table

PREFIX = "score-"
FORM: Literal[1] = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreEntry(FileEntry):
    """A score: its table (pairs,) of float32 in the order of the pairs, NaN where a pair has none."""

    __pydantic_config__ = STRICT

    form: Literal[1]
    pairs: Count
    made_by: dict[str, Any]
    """A field, or a command."""


def entry_file(name: str) -> str:
    """The file that says what a score is."""
    return f"{PREFIX}{name}.json"


def write_score(folder: Path, name: str, made_by: Mapping[str, Any], pairs: int, parts: Iterable[NDArray[Any]]) -> None:
    """Write a score beside a dataset.

    Args:
        folder: of the dataset.
        name: of the score.
        made_by: what made it.
        pairs: of the dataset.
        parts: the scores of all pairs, in their order.

    Raises:
        OSError: it cannot be written.
    """
    path = folder / f"{PREFIX}{name}.npy"
    write_table(path, np.dtype("<f4"), (pairs,), parts, sync=True)
    tree = {"form": FORM, "pairs": pairs, "made_by": made_by, **dataclasses.asdict(describe_file(path))}
    write_text(folder / entry_file(name), json.dumps(tree, indent=1, ensure_ascii=False) + "\n")


def parse_entry(content: bytes, where: str) -> ScoreEntry:
    """What the file of a score says.

    Raises:
        DataError: it is invalid.
    """
    try:
        entry: ScoreEntry = TypeAdapter(ScoreEntry).validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise DataError(": ".join((where, *map(str, first["loc"]), first["msg"]))) from error
    return entry
