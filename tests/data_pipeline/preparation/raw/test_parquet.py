"""Parquet and Arrow against pyarrow's own whole tables."""

import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from configs import CorpusFiles, UserError
from configs.load import parse_run
from data_pipeline.preparation.raw.corpus import corpus_units
from tests.data_pipeline.preparation.raw.reading import Pairs, pairs_of, parts_of, read

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
feather = pytest.importorskip("pyarrow.feather")

ROWS = [
    {"id": n, "translation": {"en": f"source\n{n}" * (n % 3), "de": f"ziel ü{n}"}, "score": n / 4 if n % 5 else None}
    for n in range(10_000)
]
FIELDS = {"source_field": "translation.en", "target_field": "translation.de"}


def write(path: Path, table: Any) -> None:
    """A table in the format that the name says, with several record batches or row groups."""
    form, _, detail = path.name.partition(".")
    if form == "parquet":
        settings: dict[str, dict[str, Any]] = {
            "small": {"row_group_size": 7},
            "odd": {"row_group_size": 5001, "compression": "zstd", "data_page_size": 1000},
            "one": {"use_dictionary": False, "compression": "none"},
            "new": {"version": "2.6", "data_page_version": "2.0", "use_dictionary": ["translation.de"]},
        }
        parquet.write_table(table, path, **settings[detail])
    elif form == "stream":
        with pyarrow.ipc.new_stream(path, table.schema) as writer:
            writer.write_table(table, max_chunksize=999)
    else:
        feather.write_feather(table, str(path), compression=detail, chunksize=1234)


@pytest.mark.parametrize(
    "name",
    ["parquet.small", "parquet.odd", "parquet.one", "parquet.new", "feather.lz4", "feather.uncompressed", "stream"],
)
def test_equal_to_the_whole_table(tmp_path: Path, name: str) -> None:
    table = pyarrow.Table.from_pylist(ROWS)
    write(tmp_path / name, table)
    rows = [row["translation"] for row in table.to_pylist()]
    wanted: Pairs = [(row["en"].replace("\n", " "), row["de"]) for row in rows]
    files = parse_run({"prepare": {"train": {"parquet": [name], **FIELDS}}}).prepare.train
    for size in (999, 7000, 20_000):
        found = parts_of(files, tmp_path, size)
        assert [span.pairs for _, span, _ in found[:-1]] == [size] * (len(found) - 1)
        assert [pair for _, _, raw in found for pair in pairs_of(raw)] == wanted
        for unit, span, raw in found:
            assert unit.is_seekable == name.startswith("parquet")
            assert not unit.is_seekable or unit.read(span) == raw
    [unit] = corpus_units(files, str(tmp_path), {"qe": "score", "id": "id"})
    [(_, raw)] = unit.stream(0, 0, 20_000)
    extra = raw.pairs().extra
    assert extra["qe"] == ["" if row["score"] is None else str(row["score"]) for row in ROWS]
    assert extra["id"] == [f"{n}" for n in range(10_000)]


@pytest.mark.parametrize("kind", ["large_string", "dictionary", "string_view"])
def test_strings_of_any_type(tmp_path: Path, kind: str) -> None:
    texts = pyarrow.array(["a", "b", "a"])
    column = {
        "large_string": lambda: texts.cast(pyarrow.large_string()),
        "dictionary": texts.dictionary_encode,
        "string_view": lambda: texts.cast(pyarrow.string_view()),
    }[kind]()
    parquet.write_table(pyarrow.table({"source": column, "a.b": texts}), tmp_path / "a.parquet")
    files = CorpusFiles(parquet=["a.parquet"], target_field="a.b")
    assert read(files, tmp_path) == [("a", "a"), ("b", "b"), ("a", "a")]


FAULTS: list[tuple[dict[str, list[Any]], str]] = [
    ({"en": ["a"], "target": ["b"]}, "a: has no column source"),
    ({"source": ["a", "b", None], "target": ["b", "c", "d"]}, "a: line 3: source is null"),
    ({"source": ["a"], "target": [1]}, "a: line 1: target is a int"),
    ({"source": ["a", "b\0"], "target": ["b", "c"]}, "a: line 2 holds a NUL byte"),
    ({"source": [], "target": []}, "a: is empty"),
]


@pytest.mark.parametrize(("columns", "message"), FAULTS, ids=range(len(FAULTS)))
def test_faulty_columns(tmp_path: Path, columns: dict[str, list[Any]], message: str) -> None:
    table = pyarrow.table(columns)
    for writes in (parquet.write_table, feather.write_feather):
        writes(table, str(tmp_path / "a"))
        with pytest.raises(UserError) as caught:
            read(CorpusFiles(parquet=["a"]), tmp_path, 2)
        assert message in str(caught.value)


def test_broken_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = CorpusFiles(parquet=["a"])
    table = pyarrow.table({"source": [f"{n} text" for n in range(5000)], "target": ["b"] * 5000})
    for writes in (parquet.write_table, feather.write_feather):
        writes(table, str(tmp_path / "a"))
        content = (tmp_path / "a").read_bytes()
        for broken in (content[:-5], content[:40], content[:8] + bytes(200) + content[208:]):
            (tmp_path / "a").write_bytes(broken)
            with pytest.raises(UserError, match="a: cannot be read by pyarrow: ") as caught:
                read(files, tmp_path)
            assert "\n" not in str(caught.value)
    for other in (b"", b"PAR", b"en\tfr\n"):
        (tmp_path / "a").write_bytes(other)
        with pytest.raises(UserError, match="a: is no file of Parquet or Arrow"):
            read(files, tmp_path)
    parquet.write_table(table, tmp_path / "a")
    found = parts_of(files, tmp_path, 3000)
    parquet.write_table(table.slice(0, 4000), tmp_path / "a")
    with pytest.raises(UserError, match="a: was changed while it was read"):
        found[1][0].read(found[1][1])
    (tmp_path / "a").unlink()
    with pytest.raises(UserError, match="a: cannot be read"):
        read(files, tmp_path)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UserError, match="pyarrow is missing"):
        read(files, tmp_path)


def test_memory_is_that_of_a_span(tmp_path: Path) -> None:
    """Of Arrow's own memory too, although the file has one row group."""
    for count in (40_000, 160_000):
        texts = [
            f"a text of some eighty characters, number {n}, that has no other like it {n * n}" for n in range(count)
        ]
        parquet.write_table(pyarrow.table({"source": texts, "target": texts}), tmp_path / f"{count}")
    peaks = []
    for count in (40_000, 160_000):
        [unit] = corpus_units(CorpusFiles(parquet=[f"{count}"]), str(tmp_path))
        before = pyarrow.default_memory_pool()
        pool = pyarrow.proxy_memory_pool(before)
        tracemalloc.start()
        pyarrow.set_memory_pool(pool)
        try:
            for _ in unit.stream(0, 0, 10_000):
                pass
        finally:
            pyarrow.set_memory_pool(before)
        peaks.append(tracemalloc.get_traced_memory()[1] + pool.max_memory())
        tracemalloc.stop()
    assert peaks[1] < 1.3 * peaks[0], peaks
