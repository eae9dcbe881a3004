"""Padding of unplanned batches, under the same budgets as the reader's."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from data_pipeline.prepared.dataset import Dataset


def unplanned(*, dataset: str, tokens: int, max_rows: int) -> dict[str, Any]:
    """The padding fraction with pairs in random order, and sorted by source length, then target length.

    Batches are filled in order, each until the next pair would exceed the padded tokens of a side or the rows.
    """
    lengths = Dataset.load(Path(dataset)).lengths[:].astype(np.int64) + 1
    shuffled = np.random.default_rng(1).permutation(len(lengths))
    by_length = np.lexsort((lengths[:, 1], lengths[:, 0]))
    return {
        name: padding_fraction(lengths[order], tokens, max_rows)
        for name, order in (("random", shuffled), ("sorted", by_length))
    }


def padding_fraction(lengths: NDArray[np.int64], tokens: int, max_rows: int) -> float:
    """The fraction of padding in the batches that pairs of `lengths` (pairs, 2) fill in order, both sides together."""
    padded = rows = source = target = 0
    for next_source, next_target in lengths.tolist():
        longest = max(source, next_source), max(target, next_target)
        if rows and (rows == max_rows or (rows + 1) * max(longest) > tokens):
            padded += rows * (source + target)
            rows, longest = 0, (next_source, next_target)
        rows += 1
        source, target = longest
    padded += rows * (source + target)
    return 1 - int(lengths.sum()) / padded
