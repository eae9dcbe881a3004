"""Filters that a configuration names: one file, here or outside of the repository."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from configs.components import Corpus, DroppingFilter, Filter
from data_pipeline.preparation.cleaning import Cleaner
from data_pipeline.preparation.filters.texts import HeldOutOverlap, MaxCharacters, Normalization


def _cleaner(*filters: Filter, held_out: Sequence[tuple[str, str]] = ()) -> Cleaner:
    corpus = Corpus(source_language="en", target_language="fr", held_out=held_out)
    return Cleaner({f"prepare.filters.{number}": filter_ for number, filter_ in enumerate(filters)}, corpus)


def test_they_are_applied_in_their_order() -> None:
    """Also where one that changes lines stands behind one that drops; the later of one name has a number."""
    cleaned = _cleaner(
        MaxCharacters(limit=2), Normalization(form="nfkc"), MaxCharacters(limit=2), HeldOutOverlap(mode="pair"),
        held_out=[("A", "b")],
    ).clean(["abc", "ﬃ", "a", "c"], ["x", "y", "b", "b"])  # fmt: skip
    assert {name: rows.tolist() for name, rows in cleaned.dropped.items()} == {
        "too many characters": [0],
        "too many characters 2": [1],
        "held-out overlap": [2],
    }
    assert (cleaned.sources, cleaned.targets, cleaned.rows.tolist()) == (["c"], ["b"], [3])
    assert cleaned.names == ["too many characters", "normalization", "too many characters 2", "held-out overlap"]


class Named(DroppingFilter):
    def __init__(self, name: str, find: Callable[[list[str], list[str]], Any] = lambda *_: []) -> None:
        object.__setattr__(self, "kind", name)
        object.__setattr__(self, "find", find)


def test_names_of_the_last_filters_are_taken() -> None:
    """What a filter of this name drops would be counted as theirs."""
    assert _cleaner(Named("duplicate"), Named("duplicate")).clean([], []).names == ["duplicate 2", "duplicate 3"]


@pytest.mark.parametrize("rows", [[1, 0, 1], {0, 1}, (1, 0), range(2)], ids=repr)
def test_rows_in_any_order(rows: Any) -> None:
    cleaned = _cleaner(Named("good", lambda *_: rows)).clean(["a", "b", "c"], ["d", "e", "f"])
    assert cleaned.dropped["good"].tolist() == [0, 1]
    assert (cleaned.sources, cleaned.targets) == (["c"], ["f"])
