"""Scores of a dataset's pairs: two files for each, beside the shards and not in the index.

`score-NAME.npy` has a number for each pair, `score-NAME.json`, written last, what it is. So a dataset keeps its
fingerprint when it gets a score.
"""

import contextlib
import dataclasses
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from configs.process.files.inside import replacing, write_text
from data_pipeline.errors import DataError
from data_pipeline.prepared.index import STRICT, Count, FileEntry, describe_file

PREFIX = "score-"
FORM: Literal[1] = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreEntry(FileEntry):
    """A score: its table (pairs,) of float32 in the order of the pairs, NaN where a pair has none."""

    __pydantic_config__ = STRICT

    form: Literal[1]
    pairs: Count
    made_by: dict[str, Any]
    """A field, or a command with the content of what it depends on."""


def entry_file(name: str) -> str:
    """The file that says what a score is."""
    return f"{PREFIX}{name}.json"


def score_file(name: str) -> str:
    """The table of a score."""
    return f"{PREFIX}{name}.npy"


def write_scores(
    folder: Path, made_by: Mapping[str, Mapping[str, Any]], pairs: int, parts: Iterable[NDArray[np.float32]]
) -> None:
    """Write scores beside a dataset.

    Args:
        folder: of the dataset.
        made_by: what made each, by name.
        pairs: of the dataset.
        parts: (pairs of a part, scores): parts of all pairs in their order, the scores in that of `made_by`.

    Raises:
        OSError: they cannot be written.
    """
    header = {"descr": "<f4", "fortran_order": False, "shape": (pairs,)}
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(replacing(folder / score_file(name), sync=True)) for name in made_by]
        for file in files:
            np.lib.format.write_array_header_1_0(file, header)
        for part in parts:
            for column, file in enumerate(files):
                file.write(part[:, column].astype("<f4").tobytes())
    for name, made in made_by.items():
        described = dataclasses.asdict(describe_file(folder / score_file(name)))
        tree = {"form": FORM, "pairs": pairs, "made_by": made, **described}
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
