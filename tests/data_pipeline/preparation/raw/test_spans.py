"""Spans of a corpus whose lines are long."""

import gzip
from pathlib import Path

import pytest

from data_pipeline.preparation.raw import lines, text
from data_pipeline.preparation.raw.text import TextUnit


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_spans_of_long_lines_have_fewer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str) -> None:
    for module in (lines, text):
        monkeypatch.setattr(module, "MAX_TAKE_BYTES", 1000)
    sides = [[f"{n}" + "x" * (n * 7 % 300) for n in range(200)], [f"{n}" + "y" * (n * 11 % 150) for n in range(200)]]
    paths = tuple(tmp_path / f"{name}{suffix}" for name in ("source", "target"))
    for path, side in zip(paths, sides, strict=True):
        content = "\n".join(side).encode()  # the last lacks its line feed
        path.write_bytes(gzip.compress(content) if suffix else content)
    unit = TextUnit(paths=paths)
    found = list(unit.stream(0, 0, 50))
    assert all(len(data) < 1300 for _, raw in found for data in raw.data)
    pairs = [raw.pairs() for _, raw in found]
    assert [line for chunk in pairs for line in chunk.sources] == sides[0]
    assert [line for chunk in pairs for line in chunk.targets] == sides[1]
    again = list(unit.stream(0, 0, max(span.pairs for span, _ in found)))
    assert [span for span, _ in again] == [span for span, _ in found]
    if not suffix:
        assert [unit.read(span).data for span, _ in found] == [raw.data for _, raw in found]
