"""Filters that a configuration names: one file, here or outside of the repository."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from configs import UserError
from configs.components import ChangingFilter, Corpus, DroppingFilter, Filter
from data_pipeline.preparation.cleaning import Cleaner
from data_pipeline.preparation.filters.characters import MaxCharacters, Normalization
from data_pipeline.preparation.filters.held_out import HeldOutOverlap
from tests.conftest import Finished, environment, install_plugin
from tests.forked import Forked

THEIRS = '''
"""Filters of somebody else's, in one file outside of the repository."""

import os

from configs.components import ChangingFilter, DroppingFilter, component
from configs.fields import Positive


@component("filter", "few_words")
class FewWords(DroppingFilter):
    """Drops pairs of which either side has too few words."""

    at_least: Positive = 2

    def open(self, corpus, place):
        assert (corpus.source_language, place) == ("en", "prepare.filters.1")
        with open(f"{os.environ['OPENED']}/{os.getpid()}", "w"):
            return self.find

    def find(self, sources, targets):
        pairs = zip(sources, targets, strict=True)
        return [row for row, pair in enumerate(pairs) if min(len(side.split()) for side in pair) < self.at_least]


@component("filter", "quotes")
class Quotes(ChangingFilter):
    """Straight quotation marks."""

    def change(self, sources, targets):
        return [line.replace("“", '"') for line in sources], targets
'''
CONFIG = """
prepare:
  output: out
  source_language: en
  target_language: fr
  train: {source: [a.en, b.en], target: [a.fr, b.fr]}
  valid: {source: [v.en], target: [v.fr]}
  tokenizer: {vocab_size: 60}
  max_pieces: 100
  workers: 2
"""
FILTERS = "prepare.filters=[quotes, {kind: few_words, at_least: 3}]"


@dataclass(frozen=True)
class Theirs:
    folder: Path
    installed: dict[str, str]
    """The environment of a process that has the package."""
    forked: Forked

    def __call__(self, *arguments: str, variables: dict[str, str] | None = None) -> Finished:
        return self.forked.zeromt(*arguments, cwd=self.folder, surroundings=variables or self.installed)


@pytest.fixture
def theirs(tmp_path: Path, forked: Forked) -> Theirs:
    """A folder with a corpus and a configuration, and an installed package with filters."""
    for name in "ab":
        sources = [f"{name} cat of number {n}" for n in range(150)]
        sources[7], sources[9] = "“A cat” and so on", "“Short one”"
        (tmp_path / f"{name}.en").write_text("".join(f"{line}\n" for line in sources))
        (tmp_path / f"{name}.fr").write_text("".join(f"un chat de numero {n}\n" for n in range(150)))
    (tmp_path / "v.en").write_text("a cat of\n")
    (tmp_path / "v.fr").write_text("un chat de\n")
    (tmp_path / "run.yaml").write_text(CONFIG)
    (tmp_path / "opened").mkdir()
    package = tmp_path / "site"
    package.mkdir()
    return Theirs(tmp_path, {**install_plugin(package, "filters", THEIRS), "OPENED": str(tmp_path / "opened")}, forked)


def test_a_filter_in_one_file_outside(theirs: Theirs) -> None:
    """By an entry point, in two processes: counted, with examples; later it is what the dataset was made with."""
    done = theirs("prepare", "run.yaml", FILTERS)
    assert done.code == 0, done.err
    assert len(list((theirs.folder / "opened").iterdir())) == 3, "the command's process and two that encode"
    report = json.loads((theirs.folder / "out" / "report.json").read_text())
    assert list(report["filters"]) == ["empty", "quotes", "few_words", "too long"]
    assert (report["read"], report["kept"]) == (300, 298)
    assert report["filters"]["quotes"] == {"dropped": 0, "changed": 4, "examples": []}
    assert report["filters"]["few_words"]["dropped"] == 2
    assert report["filters"]["few_words"]["examples"] == [
        {"where": f"{name}.en: line 10", "source": "“Short one”", "target": "un chat de numero 9"} for name in "ab"
    ]
    index = json.loads((theirs.folder / "out" / "index.json").read_text())
    assert index["recipe"]["settings"]["filters"] == [{"kind": "quotes"}, {"kind": "few_words", "at_least": 3}]
    assert index["dropped"]["few_words"] == 2

    again = theirs("prepare", "run.yaml", FILTERS)
    assert (again.code, "already prepared" in again.out) == (0, True), again.err
    other = theirs("prepare", "run.yaml", "prepare.filters=[quotes, few_words]")
    assert other.code == 2
    quotes, words = "{'kind': 'quotes'}", "{'kind': 'few_words', 'at_least': 3}"
    was = f"[{quotes}, {words}] and is [{quotes}, {{'kind': 'few_words', 'at_least': 2}}]"
    assert f"holds another dataset (filters was {was})" in other.err
    elsewhere = theirs("inspect", "out", variables=environment())  # where the package is not
    assert elsewhere.code == 0, elsewhere.err
    assert ["few_words", "2", "0.67%", "0"] in [line.split() for line in elsewhere.out.splitlines()]


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


@pytest.mark.parametrize("rows", [[2], [-1], [True, False], [0.5], ["0"], [[0], []], None, 1], ids=repr)
def test_what_are_no_rows(rows: Any) -> None:
    cleaner = _cleaner(Named("bad", lambda *_: rows))
    with pytest.raises(UserError, match=r"^prepare.filters.0: bad gave .* for 2 pairs; a filter gives the numbers of"):
        cleaner.clean(["a", "b"], ["c", "d"])


@pytest.mark.parametrize("rows", [[1, 0, 1], {0, 1}, (1, 0), range(2)], ids=repr)
def test_rows_in_any_order(rows: Any) -> None:
    cleaned = _cleaner(Named("good", lambda *_: rows)).clean(["a", "b", "c"], ["d", "e", "f"])
    assert cleaned.dropped["good"].tolist() == [0, 1]
    assert (cleaned.sources, cleaned.targets) == (["c"], ["f"])


def test_lines_that_are_lost() -> None:
    class Shorter(ChangingFilter):
        def change(self, sources: list[str], targets: list[str]) -> tuple[list[str], list[str]]:
            return sources[1:], targets

    with pytest.raises(UserError, match=r"^prepare.filters.0: .*changed 2 pairs to 1 and 2 lines; a filter gives as"):
        _cleaner(Shorter()).clean(["a", "b"], ["c", "d"])
