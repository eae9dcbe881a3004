"""Triples: beside each pair a rejected translation of its source, which the filters judge as they judge the pair."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from configs import PrepareSection
from data_pipeline.preparation.cleaning import Cleaned, Rows

IN_EXTRA = "rejected"
"""Name in `TextChunk.extra` of the rejected translations."""


def rejected_fields(section: PrepareSection) -> dict[str, str]:
    """The field with the rejected translations, by its name in `TextChunk.extra`; none without them."""
    field = section.train.rejected_field
    return {} if field is None else {IN_EXTRA: str(field)}


def kept_of_both(chosen: Cleaned, rejected: Cleaned) -> tuple[Cleaned, list[str]]:
    """The triples of which the filters kept both pairs, and their rejected translations.

    Args:
        chosen: sources and chosen translations of a chunk.
        rejected: the same sources and rejected translations.
    """
    rows = np.intersect1d(chosen.rows, rejected.rows)
    dropped = first_dropped(chosen.dropped, rejected.dropped)
    own, other = (np.searchsorted(one.rows, rows).tolist() for one in (chosen, rejected))
    both = dataclasses.replace(
        chosen,
        sources=[chosen.sources[row] for row in own],
        targets=[chosen.targets[row] for row in own],
        rows=rows,
        dropped=dropped,
    )
    return both, [rejected.targets[row] for row in other]


def first_dropped(dropped: Mapping[str, Rows], further: Mapping[str, Rows]) -> dict[str, Rows]:
    """Rows by the filter that dropped them: the first of them, or else the one in `further`."""
    before = np.concatenate([*dropped.values(), np.empty(0, dtype=np.int64)])
    return {
        name: np.sort(np.concatenate([rows, np.setdiff1d(further[name], before)])) for name, rows in dropped.items()
    }


def lengths_of(rows: Sequence[Sequence[int]]) -> Rows:
    """(rows,): the number of pieces of each."""
    return np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
