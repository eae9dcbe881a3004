"""Which field is meant, of every format that has some."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from configs import CorpusFiles
from data_pipeline.preparation.corpus import corpus_units
from tests.data_pipeline.preparation.raw.reading import PACKERS, named, pairs_of, read, spans_of

HEAD = ["id", "target", "score", "en text", "source"]
ROWS = [[f"{n}", f"ziel {n}", f"{n / 7:.3f}" * (n % 3 > 0), f'"quelle {n}', f"source ü{n}"] for n in range(11)]
CHOICES: list[tuple[dict[str, Any], bool, tuple[int, int]]] = [
    ({"source_field": 5, "target_field": "2"}, False, (4, 1)),
    ({"source_field": "en text"}, True, (3, 1)),
    ({"source_field": "en text", "target_field": 1}, True, (3, 0)),
]


@pytest.mark.parametrize(("fields", "has_header", "columns"), CHOICES)
@pytest.mark.parametrize(("suffix", "start", "end"), [("", "", "\n"), ("", "\ufeff", "\r\n"), (".gz", "\ufeff", "\n")])
def test_columns_of_tsv(
    tmp_path: Path,
    fields: dict[str, Any],
    has_header: bool,
    columns: tuple[int, int],
    suffix: str,
    start: str,
    end: str,
) -> None:
    """Against the module `csv`."""
    text = start + end.join("\t".join(row) for row in [HEAD, *ROWS][not has_header :])
    (tmp_path / f"a.tsv{suffix}").write_bytes(PACKERS[suffix](text.encode()))
    lines = text.removeprefix("\ufeff").splitlines()
    rows = list(csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))[has_header:]
    spans = spans_of(named([f"a.tsv{suffix}"], "tsv", **fields), tmp_path, 3)
    assert [p for _, _, raw in spans for p in pairs_of(raw)] == [tuple(row[n] for n in columns) for row in rows]
    assert spans[0][2].pairs().where(0).endswith(f"line {1 + has_header}")
    assert all(unit.read(span) == raw for unit, span, raw in spans if unit.is_seekable)


NAMED = [
    ("translation.en", {"translation.en": "a", "translation": {"en": "b"}}, "a"),
    ("translation.en", {"translation": {"en": "b"}, "x": 1}, "b"),
    ("en text", {"en text": "a"}, "a"),
    ("a.b.c", {"a": {"b": {"c": "x"}}}, "x"),
    ("a.b.c", {"a.b": {"c": "x"}, "a": {"b.c": "y"}}, "x"),
    ("a.b.c", {"a.b": {"d": "x"}, "a": {"b.c": "y"}}, "y"),
    ("a.b.c", {"a.b": "text", "a": {"b.c": "y"}}, "y"),
    (" .", {" .": "x"}, "x"),
]


@pytest.mark.parametrize(("field", "row", "text"), NAMED)
def test_the_key_of_this_name_comes_before_a_path(tmp_path: Path, field: str, row: dict[str, Any], text: str) -> None:
    for files in _both(tmp_path, [{**row, "t": "z"}] * 2, source_field=field, target_field="t"):
        assert read(files, tmp_path) == [(text, "z")] * 2


def test_further_texts(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"source": "a\nb\r\nc", "target": "\u2028", "scores": {"qe": 0.5, "why": "one\ntwo"}},
        {"source": "b", "target": "y", "scores": {"qe": None, "why": "three"}},
        {"source": "c", "target": "z", "scores": None},
    ]
    for files in _both(tmp_path, rows):
        [unit] = corpus_units(files, str(tmp_path), {"score": "scores.qe", "reason": "scores.why"})
        chunks = [raw.pairs() for _, raw in unit.stream(0, 0, 2)]
        assert chunks[0].sources[0] == "a b  c"
        assert [text for chunk in chunks for text in chunk.extra["score"]] == ["0.5", "", ""]
        assert [text for chunk in chunks for text in chunk.extra["reason"]] == ["one two", "three", ""]
    (tmp_path / "a.tsv").write_text("".join("\t".join(row) + "\n" for row in [HEAD, *ROWS]))
    [unit] = corpus_units(named(["a.tsv"], "tsv", source_field="source"), str(tmp_path), {"qe": "score", "number": "1"})
    [(_, raw)] = unit.stream(0, 0, 100)
    assert raw.pairs().extra == {"qe": [row[2] for row in ROWS], "number": [row[0] for row in ROWS]}


@pytest.mark.parametrize("type_", ["int8", "uint64", "halffloat", "float", "double", "decimal128(5, 2)"])
def test_every_numeric_type_of_a_table_is_a_number(tmp_path: Path, type_: str) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    name, _, digits = type_.partition("(")
    kind = pyarrow.decimal128(5, 2) if digits else pyarrow.type_for_alias(name)
    column = pyarrow.array([2.0, None]).cast(kind)
    table = pyarrow.table({"source": ["a", "b"], "target": ["c", "d"], "qe": column})
    pytest.importorskip("pyarrow.parquet").write_table(table, tmp_path / "a")
    [unit] = corpus_units(named(["a"], "table"), str(tmp_path), {"qe": "qe"})
    [(_, raw)] = unit.stream(0, 0, 9)
    two, none = raw.pairs().extra["qe"]
    assert (float(two), none) == (2.0, "")


def _both(folder: Path, rows: list[dict[str, Any]], **fields: Any) -> list[CorpusFiles]:
    """Rows as JSON lines, and as a folder of Hugging Face."""
    (folder / "a.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    pytest.importorskip("datasets").Dataset.from_list(rows).save_to_disk(str(folder / "hf"))
    return [named(["a.jsonl"], "jsonl", **fields), named(["hf"], "table", **fields)]
