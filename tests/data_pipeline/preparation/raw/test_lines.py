import gzip
import itertools
import os
import tempfile
import threading
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from configs import UserError
from data_pipeline.preparation.lines import MAX_LINE_BYTES, byte_lines, decode_lines
from tests.data_pipeline.preparation.raw.reading import PACKERS
from tests.waiting import PATIENCE


def _read(path: Path, size: int = 1000) -> list[str]:
    reader, lines = byte_lines(path), list[str]()
    while raw := list(itertools.islice(reader, size)):
        lines += decode_lines(path, b"\n".join([*raw, b""]), range(len(lines) + 1, len(lines) + len(raw) + 1))
    return lines


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.text(st.characters(exclude_characters="\n\0\r", exclude_categories=["Cs"]))).map(lambda a: ["x", *a]),
    st.sampled_from(sorted(PACKERS)),
    st.sampled_from(["\n", "\r\n"]),
    st.integers(1, 5),
)
def test_lines_come_back(lines: list[str], suffix: str, end: str, size: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"text{suffix}"
        path.write_bytes(PACKERS[suffix](end.join([*lines, ""]).encode()))
        assert _read(path, size) == lines


def test_only_line_feeds_end_a_line(tmp_path: Path) -> None:
    odd = ["a\u2028b", "c\x85d", "e\x0bf\x0cg", "h\rj", "", "last"]
    (tmp_path / "text").write_text("\n".join(odd), encoding="utf-8", newline="")
    assert _read(tmp_path / "text", 2) == odd


def test_streams_follow_one_another(tmp_path: Path) -> None:
    for suffix, pack in PACKERS.items():
        path = tmp_path / f"text{suffix}"
        path.write_bytes(pack(b"a\nb") + pack(b"c\nd\n"))
        assert _read(path) == ["a", "bc", "d"]
        if suffix:
            (tmp_path / f"packed{suffix}").write_bytes(pack(b"a\n") + bytes(8) + pack(b"b\n") + bytes(1024))
        if suffix == ".gz":  # its format allows zeros after a stream
            assert _read(tmp_path / f"packed{suffix}") == ["a", "b"]


@pytest.mark.parametrize("suffix", list(PACKERS))
def test_a_pipe_is_read_once(tmp_path: Path, suffix: str) -> None:
    """As of process substitution: its beginning tells how it is packed, and is not lost."""
    lines = [f"line {number}" for number in range(30_000)]
    packed = PACKERS[suffix]("\n".join(lines).encode())
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=[packed], daemon=True)
    writer.start()
    assert _read(tmp_path / "pipe") == lines
    writer.join(PATIENCE)


def test_zstandard_with_a_long_window(tmp_path: Path) -> None:
    parameters = zstandard.ZstdCompressionParameters.from_level(3, window_log=28, enable_ldm=True)
    frame = zstandard.ZstdCompressor(compression_params=parameters).compressobj()  # of unknown size: the window counts
    (tmp_path / "text.zst").write_bytes(frame.compress(b"a\nb\n") + frame.flush())
    assert _read(tmp_path / "text.zst") == ["a", "b"]


GOOD = b"one\ntwo\nthree\n"
TEXT = b"".join(b"line %d of a text that does not compress to nothing\n" % n for n in range(5000))

BROKEN = [
    ("missing.en", None, "cannot be read: No such file"),
    ("empty.en", b"", "is empty"),
    ("empty.gz", gzip.compress(b""), "is empty"),
    ("latin.en", b"one\ntwo\ncaf\xe9\n", r"latin.en: line 3 is not UTF-8"),
    ("latin.gz", gzip.compress(TEXT * 9 + b"caf\xe9\n"), r"latin.gz: line 45001 is not UTF-8"),
    ("nul.en", b"one\nt\0o\nthree\n", r"nul.en: line 2 holds a NUL byte"),
    ("cut.gz", gzip.compress(TEXT)[:-900], "is cut short"),
    ("tail.gz", gzip.compress(TEXT)[:-4], "is cut short"),
    ("flipped.gz", gzip.compress(GOOD)[:-8] + bytes(8), "is broken"),
    ("garbage.gz", GOOD, "is broken"),
    ("cut.zst", PACKERS[".zst"](TEXT)[:-90], "is cut short"),
    ("two.zst", PACKERS[".zst"](GOOD) + PACKERS[".zst"](TEXT)[:-1], "is cut short"),
    ("garbage.zst", GOOD, "is broken"),
    ("utf-16.en", "one\ntwo\n".encode("utf-16"), "line 1 (is not UTF-8|holds a NUL)"),
    ("newstest", b'\n<refset setid="x">\n<seg id="1">one</seg>\n', "is XML or SGML, whose .* `sacrebleu -t wmt20"),
    ("wmt.gz", gzip.compress(b'\xef\xbb\xbf<?xml version="1.0"?>\n<dataset id="x">\n'), "is XML or SGML"),
    ("en-fr", b'<tmx version="1.4">\n', "with reader=tmx"),
    ("archive.zip", b"PK\x03\x04\x14\0\0\0", "line 1 holds a NUL byte"),
    ("cut", gzip.compress(TEXT)[:-900], "cut: is cut short"),
    ("endless.en", b"x" * (MAX_LINE_BYTES + (1 << 20)), "has a line of more than"),
]


@pytest.mark.parametrize(("name", "content", "message"), BROKEN, ids=[name for name, *_ in BROKEN])
def test_broken_files_are_refused(tmp_path: Path, name: str, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=message) as caught:
        _read(tmp_path / name)
    assert "\n" not in str(caught.value)
    assert name in str(caught.value)
