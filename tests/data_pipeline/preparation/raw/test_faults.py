"""What is wrong with a file is said in one line that names it, and the line."""

import sys
from pathlib import Path
from typing import Any

import pytest

from configs import CorpusFiles, UserError
from tests.data_pipeline.preparation.raw.reading import PACKERS, named, read

LINES: list[tuple[str, dict[str, Any], str, str]] = [
    ("tsv", {}, "a\tA\nalone\n", "line 2 has 1 columns; allowed is 2"),
    ("tsv", {}, "a\tA\na\tb\tc\n", "line 2 has 3 columns; allowed is 2"),
    ("tsv", {}, "a\tA\n\n", "line 2 has 1 columns"),
    ("tsv", {"source_field": 3}, "a\tb\tc\n\td\n", "line 2 has 2 columns; allowed is at least 3"),
    ("tsv", {"source_field": "x"}, "a\tb\nc\td\n", "has no columns x; .* one of a, b"),
    ("tsv", {"source_field": "a"}, "a\tb\ta\nc\td\te\n", "has 2 columns a"),
    ("tsv", {"source_field": "0"}, "a\tb\n", "has no columns 0"),
    ("tsv", {"source_field": "source"}, "source\ttarget\n", "has no pair"),
    ("tsv", {}, "", "is empty"),
    ("jsonl", {}, '{"source": "a", "target": "b"}\n{\n', "line 2: is not JSON "),
    ("jsonl", {}, "[" * 200_000, "line 1: is not JSON "),
    ("jsonl", {}, "null\n", "line 1: source is missing"),
    ("jsonl", {}, '{"source": "a"}', "line 1: target is missing; allowed is a string"),
    ("jsonl", {}, '{"source": "a", "target": ["b"]}', "line 1: target is a list"),
    ("jsonl", {}, '{"source": "a", "target": "\\ud800"}', "line 1: holds half of a surrogate pair"),
    ("jsonl", {}, '{"source": "a\\u0000", "target": "b"}', "line 1: holds a NUL"),
    ("table", {}, "en\tfr\n", "cannot be read by pyarrow: "),
    ("table", {}, "PAR1", "cannot be read by pyarrow: "),
    ("tmx", {}, "a\tb\n", "is cut short, or no TMX"),
    ("tmx", {}, "<tmx><body><tu>", "is cut short, or no TMX"),
    ("tmx", {}, "<?xml version='1.0' encoding='zlib'?><tmx></tmx>", "cannot be read: .*; convert it to UTF-8"),
    ("tmx", {}, "<tmx></tmx>", "has no unit with en and fr; its languages: none"),
    ("tmx", {}, "<tmx><tu><tuv lang='de'><seg>a</seg></tuv></tu></tmx>", "has no unit .* its languages: de "),
    (
        "tmx", {}, "<!DOCTYPE tmx [<!ENTITY a 'b'>]><tmx><tu><tuv lang='en'><seg>&a;</seg></tuv></tu></tmx>",
        "has a DTD within, whose entities are not read",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "fields", "text", "message"), LINES, ids=range(len(LINES)))
def test_faulty_files(tmp_path: Path, kind: str, fields: dict[str, Any], text: str, message: str) -> None:
    (tmp_path / "bad").write_text(text)
    with pytest.raises(UserError, match=f"bad: {message}") as caught:
        read(named(["bad"], kind, **fields), tmp_path, 2)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(("left", "right"), [(2, 3), (15, 3), (1, 400), (0, 3), (3, 0)])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_differing_line_counts_are_refused(tmp_path: Path, left: int, right: int, suffix: str) -> None:
    for name, count in (("a", left), ("b", right)):
        (tmp_path / f"{name}{suffix}").write_bytes(PACKERS[suffix](b"x\n" * count))
    message = rf"a{suffix}: {left} lines, but {right} in .*b{suffix}; both must have equally many$"
    if 0 in (left, right):
        message = f"{'b' if left else 'a'}{suffix}: is empty"
    with pytest.raises(UserError, match=message):
        read(CorpusFiles(source=[f"a{suffix}"], target=[f"b{suffix}"]), tmp_path)


TABLES: list[tuple[dict[str, list[Any]], str]] = [
    ({"en": ["a"], "target": ["b"]}, "a: has no column source; allowed is one of en, target"),
    ({"source": ["a", "b", None], "target": ["b", "c", "d"]}, "a: line 3: source is missing"),
    ({"source": ["a"], "target": [1]}, "a: line 1: target is a int"),
    ({"source": ["a", "b\0"], "target": ["b", "c"]}, "a: line 2: holds a NUL"),
    ({"source": [], "target": []}, "a: has no pair"),
]


@pytest.mark.parametrize(("columns", "message"), TABLES, ids=range(len(TABLES)))
def test_faulty_tables(tmp_path: Path, columns: dict[str, list[Any]], message: str) -> None:
    table = pytest.importorskip("pyarrow").table(columns)
    parquet, feather = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow.feather")
    for writes in (parquet.write_table, feather.write_feather):
        writes(table, str(tmp_path / "a"))
        with pytest.raises(UserError) as caught:
            read(named(["a"], "table"), tmp_path, 2)
        assert message in str(caught.value)


def test_broken_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parquet, feather = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow.feather")
    files = named(["a"], "table")
    table = pytest.importorskip("pyarrow").table({"source": [f"{n} text" for n in range(5000)], "target": ["b"] * 5000})
    for writes in (parquet.write_table, feather.write_feather):
        writes(table, str(tmp_path / "a"))
        content = (tmp_path / "a").read_bytes()
        for broken in (content[:-5], content[:40], content[:8] + bytes(200) + content[208:]):
            (tmp_path / "a").write_bytes(broken)
            with pytest.raises(UserError, match="a: cannot be read by pyarrow: ") as caught:
                read(files, tmp_path)
            assert "\n" not in str(caught.value)
    with pytest.raises(UserError, match="none: cannot be read"):
        read(named(["none"], "table"), tmp_path)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UserError, match="pyarrow is missing"):
        read(files, tmp_path)


def test_folders_that_are_no_dataset(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    both = datasets.DatasetDict({s: datasets.Dataset.from_dict({"source": ["a"]}) for s in ("train", "dev")})
    both.save_to_disk(str(tmp_path / "hf"))
    with pytest.raises(UserError, match="hf: has several splits; allowed is one of its folders: train, dev"):
        read(named(["hf"], "table"), tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"empty: cannot be read by pyarrow: .*state\.json"):
        read(named(["empty"], "table"), tmp_path)
