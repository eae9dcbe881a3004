"""Parallel text in datasets that Hugging Face's `Dataset.save_to_disk` wrote (optional package `datasets`).

Their fields are found in trees, as those of JSON lines are: a field such as `translation.en` is a path; a key may
itself contain dots.
"""

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from configs import UserError

BROKEN = (OSError, ValueError, LookupError, TypeError)
"""Errors of `datasets` and pyarrow for files that are missing, truncated or altered."""


def open_dataset(path: Path) -> Any:
    """The dataset in a folder.

    Raises:
        UserError: the package is missing, or the folder is not a dataset, holds several splits, or is broken.
    """
    try:
        library = importlib.import_module("datasets")
    except ImportError as error:
        raise UserError(
            "prepare.train.huggingface: datasets is missing; install it with `pip install zeromt[huggingface]`"
        ) from error
    if not path.is_dir():
        what = "is no folder" if path.exists() else "no such folder"
        raise UserError(f"{path}: {what}; give a folder that Dataset.save_to_disk wrote")
    try:
        dataset = library.load_from_disk(str(path))
    except BROKEN as error:
        raise _unreadable(path, error) from error
    if isinstance(dataset, library.DatasetDict):
        splits = sorted(dataset)
        example = "train" if "train" in splits or not splits else splits[0]
        raise UserError(f"{path}: holds the splits {', '.join(splits)}; allowed is one of them: {path / example}")
    return dataset


def read_column(path: Path, dataset: Any, field: str, first: int, count: int) -> bytes:
    """Rows `first` to `first + count` of a column of strings, such as `translation.en`, as lines of UTF-8.

    Raises:
        UserError: there is no such column, one of its rows has no text, or the dataset is broken.
    """
    there = [(key, rest) for key, rest in splits(field) if key in dataset.column_names]
    if not there:
        columns = ", ".join(dataset.column_names) or "none"
        name = field.partition(".")[0]
        raise UserError(f"{path}: has no column {name}; allowed is one of {columns} (source_field, target_field)")
    holding = (
        place for place in there if place[1] is None or find(dataset.features[place[0]], place[1]) is not MISSING
    )
    column, rest = next(holding, there[0])
    try:
        values = dataset.select_columns(column).with_format("arrow")[first : first + count][column].to_pylist()
    except BROKEN as error:
        raise _unreadable(path, error) from error
    if rest is not None:
        values = [_inside(path, value, rest, field) for value in values]
    for row, value in enumerate(values):
        if not isinstance(value, str):
            kind = "null" if value is None else f"a {type(value).__name__}"
            raise UserError(f"{path}: line {first + row + 1}: {field} is {kind}; allowed is a string")
    lines = "\0".join(values)
    if "\n" in lines or "\r" in lines:  # a sentence is one line
        lines = lines.replace("\n", " ").replace("\r", " ")
    if lines.count("\0") != len(values) - 1:
        row = next(i for i, v in enumerate(values) if "\0" in v)
        raise UserError(f"{path}: line {first + row + 1} holds a NUL byte; allowed is text")
    return f"{lines}\0".replace("\0", "\n").encode()


def _inside(path: Path, value: Any, rest: str, field: str) -> Any:
    """The value of a field within a row; None if the row does not have it."""
    if value is None:
        return None
    if (inner := find(value, rest)) is MISSING:
        what = f"holds {', '.join(value)}" if isinstance(value, dict) else f"is a {type(value).__name__}"
        raise UserError(f"{path}: has no column {field}: what is before {rest} {what}; allowed is a column of text")
    return inner


def _unreadable(path: Path, error: Exception) -> UserError:
    reason = " ".join(str(error).split())[:200]
    return UserError(f"{path}: cannot be read by datasets.load_from_disk: {reason or type(error).__name__}")


MISSING = object()
"""The result of `find` if there is no such field."""


def find(tree: Any, field: str) -> Any:
    """The value of a field: of the key with exactly this name, else at a path of keys; `MISSING` if there is none.

    Of several paths the one with the longest first key is taken. `Dataset.flatten()` makes keys such as
    `translation.en`.
    """
    if not isinstance(tree, dict):
        return MISSING
    for key, rest in splits(field):
        if key in tree and (value := tree[key] if rest is None else find(tree[key], rest)) is not MISSING:
            return value
    return MISSING


def splits(field: str) -> Iterator[tuple[str, str | None]]:
    """Splits of a field into a key and the rest, longest key first: the field itself with an empty rest."""
    yield field, None
    end = field.rfind(".")
    while end >= 0:
        yield field[:end], field[end + 1 :]
        end = field.rfind(".", 0, end)
