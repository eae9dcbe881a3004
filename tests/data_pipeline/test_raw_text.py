import gzip
import io
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from configs import CorpusFiles, UserError
from data_pipeline.raw_text import read_chunks, read_lines


def _zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


PACKERS: dict[str, Callable[[bytes], bytes]] = {"": lambda data: data, ".gz": gzip.compress, ".zst": _zstd}


def _pairs(files: CorpusFiles, root: Path, size: int = 3) -> list[tuple[str, str]]:
    return [
        pair for chunk in read_chunks(files, str(root), size) for pair in zip(chunk.sources, chunk.targets, strict=True)
    ]


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.text(st.characters(exclude_characters="\n\0\r", exclude_categories=["Cs"]))).map(lambda a: ["x", *a]),
    st.sampled_from(sorted(PACKERS)),
    st.sampled_from(["\n", "\r\n"]),
)
def test_lines_come_back(lines: list[str], suffix: str, end: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"text{suffix}"
        path.write_bytes(PACKERS[suffix](end.join([*lines, ""]).encode()))
        assert list(read_lines(path)) == lines


def test_only_line_feeds_end_a_line(tmp_path: Path) -> None:
    odd = ["a\u2028b", "c\x85d", "e\x0bf\x0cg", "h\rj", "", "last"]
    (tmp_path / "text").write_text("\ufeff" + "\n".join(odd), encoding="utf-8", newline="")
    assert list(read_lines(tmp_path / "text")) == odd


def test_long_file_across_read_buffers(tmp_path: Path) -> None:
    lines = [f"{n} " + "ü" * (n % 700) for n in range(9000)]
    data = "\n".join(lines).encode()
    assert len(data) > 3 << 20
    for suffix, pack in PACKERS.items():
        (tmp_path / f"text{suffix}").write_bytes(pack(data))
        assert list(read_lines(tmp_path / f"text{suffix}")) == lines


def test_members_and_frames_follow_one_another(tmp_path: Path) -> None:
    for suffix in (".gz", ".zst"):
        (tmp_path / f"text{suffix}").write_bytes(PACKERS[suffix](b"a\nb") + PACKERS[suffix](b"c\nd\n"))
        assert list(read_lines(tmp_path / f"text{suffix}")) == ["a", "bc", "d"]


def test_streamed_zstandard_without_a_size(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with zstandard.ZstdCompressor().stream_writer(buffer, closefd=False) as writer:
        writer.write(b"a\nb\n")
    (tmp_path / "text.zst").write_bytes(buffer.getvalue())
    assert list(read_lines(tmp_path / "text.zst")) == ["a", "b"]


def test_files_are_read_one_after_the_other(tmp_path: Path) -> None:
    for name, text in (("1.en", "a\nb\n"), ("2.en", "c\n"), ("1.fr", "A\nB\n"), ("2.fr", "C")):
        (tmp_path / name).write_text(text)
    files = CorpusFiles(source=["1.en", "2.en"], target=["1.fr", "2.fr"])
    assert _pairs(files, tmp_path) == [("a", "A"), ("b", "B"), ("c", "C")]
    (tmp_path / "1.tsv").write_text("a\tA\nb\tB\nc \t\n")
    assert _pairs(CorpusFiles(tsv=["1.tsv", "1.tsv"]), tmp_path, size=2) == [("a", "A"), ("b", "B"), ("c ", "")] * 2


GOOD = b"one\ntwo\nthree\n"
TEXT = b"".join(b"line %d of a text that does not compress to nothing\n" % n for n in range(5000))

BROKEN = [
    ("missing.en", None, "no such file"),
    ("empty.en", b"", "is empty"),
    ("empty.gz", gzip.compress(b""), "is empty"),
    ("latin.en", b"one\ntwo\ncaf\xe9\n", r"latin.en: line 3 is not UTF-8"),
    ("latin.gz", gzip.compress(TEXT * 9 + b"caf\xe9\n"), r"latin.gz: line 45001 is not UTF-8"),
    ("nul.en", b"one\nt\0o\nthree\n", r"nul.en: line 2 holds a NUL byte"),
    ("cut.gz", gzip.compress(TEXT)[:-900], "is cut short"),
    ("tail.gz", gzip.compress(TEXT)[:-4], "is cut short"),
    ("flipped.gz", gzip.compress(GOOD)[:-8] + bytes(8), "is broken"),
    ("garbage.gz", GOOD, "is broken"),
    ("cut.zst", _zstd(TEXT)[:-90], "is cut short"),
    ("two.zst", _zstd(GOOD) + _zstd(TEXT)[:-1], "is cut short"),
    ("garbage.zst", GOOD, "is broken"),
    ("packed.bz2", b"BZh9", r"\.bz2 cannot be read; allowed is plain text, \.gz or \.zst"),
    ("packed.xz", b"..", r"\.xz cannot be read"),
    ("short.en", b"one\ntwo\n", r"short.en: 2 lines beside 3 in .*good.fr; allowed is the same number"),
    ("long.en", GOOD * 5, r"long.en: 15 lines beside 3 in .*good.fr"),
    ("endless.en", b"x" * (17 << 20), "has a line of more than"),
]


@pytest.mark.parametrize(("name", "content", "message"), BROKEN, ids=[name for name, *_ in BROKEN])
def test_broken_files_are_refused(tmp_path: Path, name: str, content: bytes | None, message: str) -> None:
    (tmp_path / "good.fr").write_bytes(GOOD)
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=message) as caught:
        _pairs(CorpusFiles(source=[name], target=["good.fr"]), tmp_path)
    assert "\n" not in str(caught.value)
    assert name in str(caught.value)


@pytest.mark.parametrize(("row", "columns"), [("alone", 1), ("a\tb\tc", 3), ("", 1)])
def test_rows_without_two_columns_are_refused(tmp_path: Path, row: str, columns: int) -> None:
    (tmp_path / "bad.tsv").write_text(f"a\tA\nb\tB\nc\tC\n{row}\nd\tD\n")
    with pytest.raises(UserError, match=rf"bad.tsv: line 4 has {columns} columns; allowed is 2"):
        _pairs(CorpusFiles(tsv=["bad.tsv"]), tmp_path)


def test_a_folder_is_no_text(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is a folder"):
        list(read_lines(tmp_path))
