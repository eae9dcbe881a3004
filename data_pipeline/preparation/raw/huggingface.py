"""Datasets in the format of Hugging Face, written by `Dataset.save_to_disk` (optional package `datasets`)."""

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configs import UserError
from data_pipeline.preparation.raw.table import BATCH_ROWS, BROKEN, columns_of, rows_of, unreadable
from data_pipeline.preparation.raw.unit import Row, RowUnit

PROGRAM = "datasets.load_from_disk"


@dataclass(frozen=True, slots=True, kw_only=True)
class HuggingFaceUnit(RowUnit):
    """A folder."""

    @property
    def is_seekable(self) -> bool:
        """Always."""
        return True

    def rows(self, first: int) -> Iterator[Row]:
        """See `RowUnit.rows`."""
        [path] = self.paths
        dataset = open_dataset(path)
        columns = columns_of(self, dataset.features.arrow_schema)
        arrow = dataset.select_columns(sorted({column.name for column in columns})).with_format("arrow")
        for begin in range(first, len(dataset), BATCH_ROWS):
            try:
                yield from rows_of(self, columns, arrow[begin : begin + BATCH_ROWS], begin + 1)
            except BROKEN as error:
                raise unreadable(path, PROGRAM, error) from error


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
        raise unreadable(path, PROGRAM, error) from error
    if isinstance(dataset, library.DatasetDict):
        splits = sorted(dataset)
        example = "train" if "train" in splits or not splits else splits[0]
        raise UserError(f"{path}: holds the splits {', '.join(splits)}; allowed is one of them: {path / example}")
    return dataset
