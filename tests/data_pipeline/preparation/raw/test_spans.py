"""Every format in spans: all pairs, in any number of them, by chunk and by row, in the memory of a span."""

import json
import pickle
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from configs import UserError
from data_pipeline.preparation import corpus, lines
from data_pipeline.preparation.corpus import Span, corpus_units
from tests.data_pipeline.preparation.raw.reading import (
    LANGUAGES,
    PACKERS,
    Pairs,
    named,
    pairs_of,
    spans_of,
    write,
)

LINES = ("text", "tsv", "jsonl")
FORMS = [(form, suffix) for form in (*LINES, "tmx") for suffix in PACKERS]
FORMS += [(form, "") for form in ("parquet", "arrow", "stream", "huggingface")]
PAIRS = [(f"source {n}" * (n % 3), f"ziel ü{n}, „so“") for n in range(23)]


@pytest.mark.parametrize(("form", "suffix"), FORMS)
def test_every_format(tmp_path: Path, form: str, suffix: str) -> None:
    files = write(tmp_path, form, PAIRS, suffix)
    for size in (1, 5, 23, 100):
        spans = spans_of(files, tmp_path, size)
        assert [pair for _, _, raw in spans for pair in pairs_of(raw)] == PAIRS
        assert [span.pairs for _, span, _ in spans] == [min(size, 23 - n) for n in range(0, 23, size)]
        assert [span.first_line for _, span, _ in spans] == list(range(1, 24, size))[: len(spans)]
        assert [span.number for _, span, _ in spans] == list(range(len(spans)))
        for unit, span, raw in spans:
            assert unit.is_seekable == (form in LINES and not suffix)
            assert raw.num_pairs == span.pairs
            assert pickle.loads(pickle.dumps(raw)) == raw
            assert TypeAdapter(Span).validate_json(json.dumps(span)) == span
            if unit.is_seekable:
                assert pickle.loads(pickle.dumps(unit)).read(span) == raw


line = st.text(st.characters(exclude_characters="\n\0\r\t", exclude_categories=["Cs"]), max_size=6)


@settings(max_examples=60, deadline=None)
@given(
    pairs=st.lists(st.tuples(line, line), min_size=1, max_size=12),
    size=st.integers(1, 5),
    chunk=st.integers(1, 5),
    form=st.sampled_from(LINES),
    end=st.sampled_from(["\n", "\r\n"]),
    mark=st.booleans(),
    data=st.data(),
)
def test_any_text_by_span_by_chunk_and_by_row(
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
    files = write(folder, form, pairs)
    for path in folder.iterdir():
        content = path.read_bytes().replace(b"\n", end.encode())
        # A line of its own may begin with the mark: one more does not change that.
        path.write_bytes((b"\xef\xbb\xbf" if mark or content.startswith(b"\xef\xbb\xbf") else b"") + content)
    spans = spans_of(files, folder, size)
    assert [p for _, _, raw in spans for p in pairs_of(raw)] == pairs
    for unit, span, raw in spans:
        assert unit.read(span) == raw
        chunks = list(raw.chunks(chunk))
        assert [len(c.sources) for c in chunks[:-1]] == [chunk] * (len(chunks) - 1)
        assert [p for c in chunks for p in zip(c.sources, c.targets, strict=True)] == pairs_of(raw)
        assert [c.first_line for c in chunks] == [span.first_line + chunk * n for n in range(len(chunks))]
        rows = data.draw(st.lists(st.integers(0, span.pairs - 1), unique=True))
        assert raw.rows(np.array(rows, dtype=np.int64)) == [pairs_of(raw)[r] for r in rows]


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_spans_of_long_lines_have_fewer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str) -> None:
    monkeypatch.setattr(corpus, "MAX_SPAN_BYTES", 1000)
    monkeypatch.setattr(lines, "BLOCK_BYTES", 200)
    pairs = [(f"{n}" + "x" * (n * 7 % 300), f"{n}" + "y" * (n * 11 % 150)) for n in range(200)]
    files = write(tmp_path, "text", pairs, suffix)
    spans = spans_of(files, tmp_path, 50)
    assert all(sum(map(len, column)) < 1500 for _, _, raw in spans for column in raw.columns)
    assert [pair for _, _, raw in spans for pair in pairs_of(raw)] == pairs
    most = max(span.pairs for _, span, _ in spans)
    assert [span for _, span, _ in spans_of(files, tmp_path, most)] == [span for _, span, _ in spans]


@pytest.mark.parametrize("content", [b"a\tb\nb\tc\n", b"a", b"", None])
def test_a_file_that_changed(tmp_path: Path, content: bytes | None) -> None:
    (tmp_path / "a").write_bytes(b"a\tb\nb\tc\nc\td\nd\te\n")
    spans = spans_of(named(["a"], "tsv"), tmp_path, 2)
    if content is None:
        (tmp_path / "a").unlink()
    else:
        (tmp_path / "a").write_bytes(content)
    with pytest.raises(UserError, match=r"a: (was changed while it was read|cannot be read)"):
        spans[1][0].read(spans[1][1])


@pytest.mark.parametrize(("form", "pairs"), [("text", 40_000), ("tmx", 12_000), ("parquet", 20_000)])
def test_memory_is_that_of_a_span(tmp_path: Path, form: str, pairs: int) -> None:
    """Of Arrow's own memory too."""
    pyarrow = pytest.importorskip("pyarrow")
    peaks = []
    for count in (pairs, 3 * pairs):
        text = [f"a text of some forty characters, number {n}" for n in range(count)]
        [unit] = corpus_units(
            write(tmp_path, form, list(zip(text, text, strict=True))), str(tmp_path), languages=LANGUAGES
        )
        before = pyarrow.default_memory_pool()
        pool = pyarrow.proxy_memory_pool(before)
        tracemalloc.start()
        pyarrow.set_memory_pool(pool)
        try:
            for _ in unit.stream(0, 0, 4000):
                pass
        finally:
            pyarrow.set_memory_pool(before)
        peaks.append(tracemalloc.get_traced_memory()[1] + pool.max_memory())
        tracemalloc.stop()
    assert peaks[1] < 1.3 * peaks[0] < 20e6, peaks
