import dataclasses
import json
import pickle
import sys
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from configs import CorpusFiles, UserError
from configs.load import parse_run
from data_pipeline.preparation.raw.corpus import corpus_units
from data_pipeline.preparation.raw.unit import Span
from tests.data_pipeline.preparation.raw.reading import PACKERS, Pairs, pairs_of, parts_of, read

FORMS = [(form, suffix) for form in ("text", "tsv", "jsonl") for suffix in PACKERS] + [("huggingface", "")]


def write(folder: Path, form: str, suffix: str, pairs: Pairs) -> CorpusFiles:
    """Writes pairs in a form."""
    texts: dict[str, list[str]] = {
        "text": ["\n".join(s for s, _ in pairs), "\n".join(t for _, t in pairs)],
        "tsv": ["\n".join(f"{s}\t{t}" for s, t in pairs)],
        "jsonl": ["\n".join(json.dumps({"id": 1, "translation": {"en": s, "de": t}}) for s, t in pairs)],
        "huggingface": [],
    }
    names = []
    for number, text in enumerate(texts[form]):
        names.append(f"{form}.{number}{suffix}")
        (folder / names[-1]).write_bytes(PACKERS[suffix]((text + "\n").encode()))
    if form == "text":
        return CorpusFiles(source=names[:1], target=names[1:])
    if form == "huggingface":
        datasets = pytest.importorskip("datasets")
        rows = [{"en": s, "de": t} for s, t in pairs]
        datasets.Dataset.from_dict({"translation": rows}).save_to_disk(str(folder / "hf"))
        names = ["hf"]
    if form == "tsv":
        return CorpusFiles(tsv=names)
    named: dict[str, Any] = {form: names}
    return CorpusFiles(**named, source_field="translation.en", target_field="translation.de")


PAIRS = [(f"source {n}" * (n % 3), f"ziel ü{n}, „so“") for n in range(23)]


@pytest.mark.parametrize(("form", "suffix"), FORMS)
def test_every_form_in_parts(tmp_path: Path, form: str, suffix: str) -> None:
    files = write(tmp_path, form, suffix, PAIRS)
    for size in (1, 5, 23, 100):
        found = parts_of(files, tmp_path, size)
        assert [p for _, _, raw in found for p in pairs_of(raw)] == PAIRS
        assert [span.pairs for _, span, _ in found] == [min(size, 23 - n) for n in range(0, 23, size)]
        assert [span.first_line for _, span, _ in found] == list(range(1, 24, size))[: len(found)]
        assert [span.number for _, span, _ in found] == list(range(len(found)))
        for unit, span, raw in found:
            assert unit.is_seekable == (not suffix)
            assert raw.num_pairs == span.pairs
            assert pickle.loads(pickle.dumps(raw)) == raw
            assert TypeAdapter(Span).validate_json(json.dumps(dataclasses.asdict(span))) == span
            if unit.is_seekable:
                assert pickle.loads(pickle.dumps(unit)).read(span) == raw
        assert read(files, tmp_path, size) == PAIRS


line = st.text(st.characters(exclude_characters="\n\0\r\t", exclude_categories=["Cs"]), max_size=6)


@settings(max_examples=60, deadline=None)
@given(
    pairs=st.lists(st.tuples(line, line), min_size=1, max_size=12),
    size=st.integers(1, 5),
    chunk=st.integers(1, 5),
    form=st.sampled_from(["text", "tsv", "jsonl"]),
    end=st.sampled_from(["\n", "\r\n"]),
    mark=st.booleans(),
    data=st.data(),
)
def test_any_text_by_part_by_chunk_and_by_row(
    tmp_path_factory: pytest.TempPathFactory,
    pairs: Pairs,
    size: int,
    chunk: int,
    form: str,
    end: str,
    mark: bool,
    data: st.DataObject,
) -> None:
    folder = tmp_path_factory.mktemp("any")
    files = write(folder, form, "", pairs)
    for path in folder.iterdir():
        content = path.read_bytes().replace(b"\n", end.encode())
        # A line of its own may begin with the mark: one more does not change that.
        path.write_bytes((b"\xef\xbb\xbf" if mark or content.startswith(b"\xef\xbb\xbf") else b"") + content)
    found = parts_of(files, folder, size)
    assert [p for _, _, raw in found for p in pairs_of(raw)] == pairs
    for unit, span, raw in found:
        assert unit.read(span) == raw
        chunks = list(raw.chunks(chunk))
        assert [len(c.sources) for c in chunks[:-1]] == [chunk] * (len(chunks) - 1)
        assert [p for c in chunks for p in zip(c.sources, c.targets, strict=True)] == pairs_of(raw)
        assert [c.first_line for c in chunks] == [span.first_line + chunk * n for n in range(len(chunks))]
        rows = data.draw(st.lists(st.integers(0, span.pairs - 1), unique=True))
        assert raw.rows(np.array(rows, dtype=np.int64)) == [pairs_of(raw)[r] for r in rows]


def test_files_are_read_one_after_the_other(tmp_path: Path) -> None:
    for name, text in (("1.en", "a\nb\n"), ("2.en", "c\n"), ("1.fr", "A\nB\n"), ("2.fr", "C")):
        (tmp_path / name).write_text(text)
    files = CorpusFiles(source=["1.en", "2.en"], target=["1.fr", "2.fr"])
    assert read(files, tmp_path) == [("a", "A"), ("b", "B"), ("c", "C")]
    assert [(p.unit, p.number, p.first_line) for _, p, _ in parts_of(files, tmp_path, 1)] == [
        (0, 0, 1),
        (0, 1, 2),
        (1, 2, 1),
    ]
    (tmp_path / "1.tsv").write_text("a\tA\nb\tB\nc \t\n")
    assert read(CorpusFiles(tsv=["1.tsv", "1.tsv"]), tmp_path, size=2) == [("a", "A"), ("b", "B"), ("c ", "")] * 2


@pytest.mark.parametrize(("left", "right"), [(2, 3), (15, 3), (1, 400), (0, 3), (3, 0)])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_differing_line_counts_are_refused(tmp_path: Path, left: int, right: int, suffix: str) -> None:
    for name, count in (("a", left), ("b", right)):
        (tmp_path / f"{name}{suffix}").write_bytes(PACKERS[suffix](b"x\n" * count))
    message = rf"a{suffix}: {left} lines beside {right} in .*b{suffix}; both must have as many$"
    if 0 in (left, right):
        message = f"{'b' if left else 'a'}{suffix}: is empty"
    with pytest.raises(UserError, match=message):
        read(CorpusFiles(source=[f"a{suffix}"], target=[f"b{suffix}"]), tmp_path)


@pytest.mark.parametrize(("row", "columns"), [("alone", 1), ("a\tb\tc", 3), ("", 1)])
def test_rows_without_two_columns_are_refused(tmp_path: Path, row: str, columns: int) -> None:
    (tmp_path / "bad.tsv").write_text(f"a\tA\nb\tB\nc\tC\n{row}\nd\tD\n")
    with pytest.raises(UserError, match=rf"bad.tsv: line 4 has {columns} columns"):
        read(CorpusFiles(tsv=["bad.tsv"]), tmp_path)


BAD_JSON = [
    ("{", "is no JSON "),
    ("", "is no JSON "),
    ("[" * 200_000, "is no JSON "),
    ('["a"]', "is no JSON object"),
    ("null", "is no JSON object"),
    ('{"t": {"en": "a"}}', r"has no t.de"),
    ('{"t": "a"}', "has no t.en"),
    ('{"en": "a"}', "has no t.en"),
    ('{"t": {"en": null, "de": "b"}}', r"t.en is null"),
    ('{"t": {"en": "a", "de": ["b"]}}', "t.de is a list"),
    ('{"t": {"en": "a", "de": 3}}', "t.de is a int"),
    ('{"t": {"en": "a", "de": "\\ud800"}}', "t.de holds half of a surrogate pair"),
    ('{"t": {"en": "a\\u0000", "de": "b"}}', "t.en holds a NUL"),
]


@pytest.mark.parametrize(("text", "message"), BAD_JSON, ids=range(len(BAD_JSON)))
def test_bad_json_lines_are_refused_by_name(tmp_path: Path, text: str, message: str) -> None:
    good = '{"t": {"en": "a", "de": "b"}}\n'
    (tmp_path / "bad.jsonl").write_text(good * 3 + text + "\n" + good)
    files = CorpusFiles(jsonl=["bad.jsonl"], source_field="t.en", target_field="t.de")
    with pytest.raises(UserError, match=f"bad.jsonl: line 4:? {message}") as caught:
        read(files, tmp_path, 2)
    assert len(str(caught.value).splitlines()) == 1


def test_a_sentence_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"source": "a\\nb\\r\\nc", "target": "\\ud83d\\ude00 \\u2028"}\n')
    assert read(CorpusFiles(jsonl=["a.jsonl"]), tmp_path) == [("a b  c", "😀 \u2028")]
    files = write(tmp_path, "huggingface", "", [("a\nb", "c\r\nd"), ("e", "")])
    assert read(files, tmp_path) == [("a b", "c  d"), ("e", "")]


def test_only_chosen_rows_are_looked_at(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"one\nb\xe9d\nthree\n\0\n")
    files = CorpusFiles(source=["a"], target=["a"])
    [(_, _, raw)] = parts_of(files, tmp_path, 10)
    assert raw.rows(np.array([2, 0])) == [("three", "three"), ("one", "one")]
    assert raw.rows(np.array([], dtype=np.int64)) == []
    for row, message in ((1, "line 2 is not UTF-8"), (3, "line 4 holds a NUL")):
        with pytest.raises(UserError, match=message):
            raw.rows(np.array([0, row]))
    with pytest.raises(UserError, match="line 2 is not UTF-8"):
        list(parts_of(files, tmp_path, 2)[0][2].chunks(1))


@pytest.mark.parametrize("content", [b"a\nb\n", b"a\nb\nc d", b"a\nb\nc\nd", b"", None])
def test_a_part_of_a_file_that_changed(tmp_path: Path, content: bytes | None) -> None:
    (tmp_path / "a").write_bytes(b"a\nb\nc\nd\n")
    found = parts_of(CorpusFiles(tsv=["a"]), tmp_path, 2)
    if content is None:
        (tmp_path / "a").unlink()
    else:
        (tmp_path / "a").write_bytes(content)
    with pytest.raises(UserError, match=r"a: (was changed while it was read|cannot be read)"):
        found[1][0].read(found[1][1])


def test_memory_is_that_of_a_part(tmp_path: Path) -> None:
    for count in (200_000, 800_000):
        (tmp_path / f"{count}").write_bytes(b"a line of forty bytes, more or less ....\n" * count)
    peaks = []
    for count in (200_000, 800_000):
        [unit] = corpus_units(CorpusFiles(source=[f"{count}"], target=[f"{count}"]), str(tmp_path))
        tracemalloc.start()
        for _ in unit.stream(0, 0, 10_000):
            pass
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0] < 20e6


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
    assert parse_run({"prepare": {"train": {"source_field": field}}}).prepare.train.source_field == field
    rows = [{**row, "t": "z"}] * 2
    (tmp_path / "a.jsonl").write_text("".join(f"{json.dumps(r)}\n" for r in rows))
    assert read(CorpusFiles(jsonl=["a.jsonl"], source_field=field, target_field="t"), tmp_path) == [(text, "z")] * 2
    pytest.importorskip("datasets").Dataset.from_list(rows).save_to_disk(str(tmp_path / "hf"))
    files = CorpusFiles(huggingface=["hf"], source_field=field, target_field="t")
    assert read(files, tmp_path) == [(text, "z")] * 2


def test_further_texts(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"source": "a", "target": "x", "scores": {"qe": 0.5, "why": "one\ntwo"}},
        {"source": "b", "target": "y", "scores": {"qe": None, "why": "three"}},
        {"source": "c", "target": "z", "scores": None},
    ]
    (tmp_path / "a.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    pytest.importorskip("datasets").Dataset.from_list(rows).save_to_disk(str(tmp_path / "hf"))
    for files in (CorpusFiles(jsonl=["a.jsonl"]), CorpusFiles(huggingface=["hf"])):
        [unit] = corpus_units(files, str(tmp_path), {"score": "scores.qe", "reason": "scores.why"})
        chunks = [raw.pairs() for _, raw in unit.stream(0, 0, 2)]
        assert [text for chunk in chunks for text in chunk.extra["score"]] == ["0.5", "", ""]
        assert [text for chunk in chunks for text in chunk.extra["reason"]] == ["one two", "three", ""]
    with pytest.raises(UserError, match="hf: has no column other"):
        list(corpus_units(files, str(tmp_path), {"score": "other"})[0].stream(0, 0, 2))


def _save(folder: Path, **columns: Sequence[Any]) -> CorpusFiles:
    pytest.importorskip("datasets").Dataset.from_dict(columns).save_to_disk(str(folder / "hf"))
    return CorpusFiles(huggingface=["hf"])


def test_hugging_face_faults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    files = CorpusFiles(huggingface=["hf"])
    cases: list[tuple[dict[str, Sequence[Any]], str]] = [
        ({"en": ["a"], "de": ["b"]}, "hf: has no column source"),
        ({"source": [1], "target": ["b"]}, "hf: line 1: source is a int"),
        ({"source": ["a", "b"], "target": ["b", None]}, "hf: line 2: target is null"),
        ({"source": ["a", "b\0"], "target": ["b", "c"]}, "hf: line 2 holds a NUL"),
        ({"source": [], "target": []}, "hf: (is empty|cannot be read)"),
    ]
    for number, (columns, message) in enumerate(cases):
        (tmp_path / str(number)).mkdir()
        _save(tmp_path / str(number), **columns)
        with pytest.raises(UserError, match=message):
            read(files, tmp_path / str(number))
    both = datasets.DatasetDict({s: datasets.Dataset.from_dict({"source": ["a"]}) for s in ("train", "dev")})
    both.save_to_disk(str(tmp_path / "hf"))
    with pytest.raises(UserError, match="holds the splits dev, train"):
        read(files, tmp_path)
    with pytest.raises(UserError, match="nowhere: no such folder"):
        read(CorpusFiles(huggingface=["nowhere"]), tmp_path)
    next((tmp_path / "2" / "hf").glob("*.arrow")).write_bytes(b"ARROW")
    with pytest.raises(UserError, match=r"2/hf: cannot be read by datasets.load_from_disk"):
        read(CorpusFiles(huggingface=["2/hf"]), tmp_path)
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UserError, match="datasets is missing"):
        read(files, tmp_path)


def test_a_hugging_face_dataset_that_changed(tmp_path: Path) -> None:
    found = parts_of(_save(tmp_path, source=["a", "b", "c"], target=["x", "y", "z"]), tmp_path, 2)
    _save(tmp_path, source=["a"], target=["x"])
    with pytest.raises(UserError, match="hf: was changed while it was read"):
        found[1][0].read(found[1][1])


def test_chosen_rows_of_a_hugging_face_dataset(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    full = datasets.Dataset.from_dict({"source": [f"s{n}" for n in range(50)], "target": [f"t{n}" for n in range(50)]})
    full.select(range(10, 40, 3)).save_to_disk(str(tmp_path / "hf"), num_shards=3)
    wanted = [(f"s{n}", f"t{n}") for n in range(10, 40, 3)]
    assert read(CorpusFiles(huggingface=["hf"]), tmp_path, 4) == wanted
