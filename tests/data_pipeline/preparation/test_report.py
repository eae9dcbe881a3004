import functools
import itertools
import json
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from configs import CleaningSection, PrepareSection
from configs.components import Corpus
from data_pipeline.errors import DataError
from data_pipeline.preparation.cleaning import Cleaner, filters_of
from data_pipeline.preparation.raw.lines import TextChunk
from data_pipeline.preparation.report import Report

CORPUS = Corpus(source_language="en", target_language="fr")
SECTION = PrepareSection(cleaning=CleaningSection(normalization="nfkc", control_characters="remove", max_characters=5))
CLEANER = Cleaner(filters_of(SECTION), CORPUS)


def _report(pairs: list[tuple[str, str]], first_line: int = 1) -> Report:
    """Of a chunk, after which pairs whose source begins with L are too long, and those with D duplicates."""
    text = TextChunk("a/in.en", "a/in.fr", first_line, [s for s, _ in pairs], [t for _, t in pairs])
    cleaned = CLEANER.clean(text.sources, text.targets)
    long = [row for row, source in zip(cleaned.rows, cleaned.sources, strict=True) if source.startswith("L")]
    twice = sum(source.startswith("D") for source in cleaned.sources)
    report = Report.of_chunk(text, cleaned, dropped={"too long": np.array(long, dtype=np.int64)})
    return report.merge(Report.of(dropped={"duplicate": twice}))


PAIRS = [("ﬁ", "fi"), ("", "x"), ("L", "L"), ("a\x07", "a"), ("b", "b"), ("D", "y"), ("toolong", "z"), (" ", "")]


def test_what_is_counted() -> None:
    report = _report(PAIRS)
    assert (report.read, report.kept, report.identical) == (8, 3, 3)
    assert report.dropped() == {
        "control characters": 0,
        "empty": 2,
        "too many characters": 1,
        "too long": 1,
        "duplicate": 1,
    }
    assert {name: entry.changed for name, entry in report.filters.items() if entry.changed} == {
        "normalization": 1,
        "control characters": 1,
    }
    examples = {name: [e.where for e in entry.examples] for name, entry in report.filters.items() if entry.examples}
    assert examples == {
        "empty": ["in.en: line 2", "in.en: line 8"],
        "too many characters": ["in.en: line 7"],
        "too long": ["in.en: line 3"],
    }


def test_two_filters_of_one_name() -> None:
    """Text that only the tokenizer leaves nothing of counts as empty too."""
    text = TextChunk("f", "g", 1, ["\ufffc", "", "a", "\ufffc"], ["x", "y", "z", "w"])
    cleaned = Cleaner(filters_of(PrepareSection()), CORPUS).clean(text.sources, text.targets)
    report = Report.of_chunk(text, cleaned, dropped={"empty": np.array([0, 3])})
    assert report.dropped()["empty"] == 3
    assert [example.where for example in report.filters["empty"].examples] == ["f: line 1", "f: line 2", "f: line 4"]


def test_examples_are_what_was_read_and_short() -> None:
    (example,) = _report([("\x07" + "x" * 500, "é\u200b" * 300)]).filters["too many characters"].examples
    assert example.source == "\x07" + "x" * 199
    assert example.target == "é\u200b" * 100


LINES = st.lists(st.tuples(*[st.sampled_from(["", "L", "D", "a", "a\x07", "ﬁ", "toolong"])] * 2), max_size=30)


@settings(max_examples=80, deadline=None)
@given(LINES, st.lists(st.integers(0, 30), max_size=8), st.randoms())
def test_any_grouping_of_the_parts_gives_the_same_bytes(
    pairs: list[tuple[str, str]], cuts: list[int], rng: Any
) -> None:
    bounds = sorted({0, len(pairs), *(min(cut, len(pairs)) for cut in cuts)})
    parts = [_report(pairs[low:high], low + 1) for low, high in itertools.pairwise(bounds)]
    wanted = functools.reduce(Report.merge, parts, _report([]))
    while len(parts) > 1:
        at = rng.randrange(len(parts) - 1)
        parts[at : at + 2] = [Report.from_json(parts[at].to_json()).merge(parts[at + 1])]
    assert Report.empty().merge(wanted).to_json() == wanted.to_json() == _report(pairs).to_json()
    if parts:
        assert parts[0].to_json() == wanted.to_json()
    assert wanted.kept + sum(wanted.dropped().values()) == wanted.read == len(pairs)
    for entry in wanted.filters.values():
        lines = [int(re.sub(".*line ", "", example.where)) for example in entry.examples]
        assert lines == sorted(lines)
        assert all(pairs[line - 1] == (e.source, e.target) for line, e in zip(lines, entry.examples, strict=True))


def test_table() -> None:
    assert _report(PAIRS * 200).table() == [
        "filter               rejected  fraction  changed",
        "normalization               0     0.00%      200",
        "control characters          0     0.00%      200",
        "empty                     400    25.00%        0",
        "too many characters       200    12.50%        0",
        "too long                  200    12.50%        0",
        "duplicate                 200    12.50%        0",
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tree: tree.update(read="8"), r"read: '8': .*integer"),
        (lambda tree: tree.update(read=-1), r"read: -1: "),
        (lambda tree: tree.update(more=1), r"more: 1: "),
        (lambda tree: tree.pop("read"), r"read: .*missing|required"),
        (lambda tree: tree.update(kept=4), r"kept: 4"),
        (lambda tree: tree.pop("kept"), "kept: None"),
        (lambda tree: tree["filters"].update(magic={"dropped": -1}), r"filters\.magic\.dropped: -1: "),
        (lambda tree: tree["filters"]["empty"]["examples"].append({}), r"filters\.empty\.examples\.2\.where: "),
    ],
)
def test_broken_reports(change: Callable[[dict[str, Any]], None], message: str) -> None:
    tree = json.loads(_report(PAIRS).to_json())
    change(tree)
    with pytest.raises(DataError, match=rf"^report\.json: {message}") as caught:
        Report.from_json(json.dumps(tree).encode())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"\xff", b"[]", b"null", b"{", b"7"])
def test_what_is_no_report(content: bytes) -> None:
    with pytest.raises(DataError, match=r"^a/report\.json: is no report of a preparation"):
        Report.from_json(content, "a/report.json")
