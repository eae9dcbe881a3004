"""Scores that a dataset of the same corpus has, such as those of `zeromt score`: found by the places of its pairs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from configs import UserError
from configs.process.files.inside import name_of, replacing
from data_pipeline.preparation.staging import Input
from data_pipeline.prepared.dataset import Dataset
from data_pipeline.prepared.index import units_and_lines

ROWS_AT_ONCE = 1 << 20


def open_scored(name: str, path: Path, inputs: Sequence[Input]) -> Dataset:
    """A dataset that has a score of the pairs of a corpus.

    Args:
        name: of the score.
        path: of the dataset.
        inputs: all of the preparation.

    Raises:
        UserError: it does not have it, or is of another corpus, or its pairs' places were not recorded.
    """
    place = f"prepare.train.score_datasets.{name}: {path}"
    dataset = Dataset.load(path)
    if dataset.index.places is None:
        raise UserError(f"{place}: has no places of its pairs; prepare it with prepare.record_places=true")
    ours = [file.sha256 for file in inputs if file.split == "train"]
    theirs = [file["sha256"] for file in dataset.index.recipe.get("inputs", []) if file["split"] == "train"]
    if ours != theirs:
        raise UserError(f"{place}: was prepared from other files than prepare.train names; give a dataset of these")
    dataset.score_entry(name)
    return dataset


def made_by_dataset(name: str, dataset: Dataset) -> dict[str, Any]:
    """What makes such a score, as plain JSON."""
    entry = dataset.score_entry(name)
    return {"dataset": dataset.fingerprint, "sha256": entry.sha256, "made_by": entry.made_by}


def write_dataset_tables(
    datasets: Mapping[str, Dataset], pairs: Sequence[int], first_lines: Sequence[int], folder: Path
) -> dict[str, list[Path | None]]:
    """Scores of datasets as tables of the raw corpus; see `numbers.write_tables`.

    Args:
        datasets: by the names of scores, from `open_scored`.
        pairs: number of pairs of each unit.
        first_lines: number of the first line of each unit.
        folder: for the tables; those that are there are kept.
    """
    tables: dict[str, list[Path | None]] = {}
    for name, dataset in datasets.items():
        paths = [folder / f"{name}-{unit}.npy" for unit in range(len(pairs))]
        tables[name] = [*paths]
        for unit, (path, count, first) in enumerate(zip(paths, pairs, first_lines, strict=True)):
            if not path.exists():
                _write_table(name, dataset, unit, count, first, path)
    return tables


def _write_table(name: str, dataset: Dataset, unit: int, count: int, first_line: int, path: Path) -> None:
    scores = dataset.score(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, sync=True) as file:
        table = np.lib.format.open_memmap(name_of(file), mode="w+", dtype=np.float32, shape=(count,))
        table[:] = np.nan
        for first in range(0, dataset.num_pairs, ROWS_AT_ONCE):
            rows = slice(first, first + ROWS_AT_ONCE)
            units, lines = units_and_lines(dataset.places(rows))
            is_here = units == unit
            table[lines[is_here] - first_line] = scores[rows][is_here]
        table.flush()
