"""How many lines an input has, before it is read."""

import gzip
import os
import sys
from pathlib import Path

import pytest

from zeromt.translating.lines import count_lines


@pytest.mark.parametrize(
    ("content", "number"),
    [(b"", 0), (b"\n", 1), (b"a", 1), (b"a\nb\n", 2), (b"a\n\nb", 3), (b"a\rb\x0bc\xe2\x80\xa8d\n", 1)],
)
@pytest.mark.parametrize("is_packed", [False, True])
def test_count(content: bytes, number: int, is_packed: bool, tmp_path: Path) -> None:
    file = tmp_path / "text"  # compressed text is known by its first bytes
    file.write_bytes(gzip.compress(content) if is_packed else content)
    assert count_lines(str(file)) == number


def test_long_file(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b"x" * 700 + b"\n" + b"word\n" * 1_000_000)
    assert count_lines(str(tmp_path / "text")) == 1_000_001


def test_what_cannot_be_counted(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "cut").write_bytes(gzip.compress(b"text\n" * 100)[:-12])
    for name in ("pipe", "cut", "missing", "."):
        assert count_lines(str(tmp_path / name)) is None


def test_standard_input_may_be_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was read of it does not count, and is not read again."""
    (tmp_path / "text").write_text("a\nb\nc\n")
    with (tmp_path / "text").open("rb", buffering=0) as file:
        file.read(2)
        monkeypatch.setattr(sys, "stdin", file)
        assert count_lines(None) == 2
        assert file.read() == b"b\nc\n"
    source, sink = os.pipe()
    with os.fdopen(source, "rb") as pipe, os.fdopen(sink, "wb"):
        monkeypatch.setattr(sys, "stdin", pipe)
        assert count_lines(None) is None
