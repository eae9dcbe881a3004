"""Shards made elsewhere, against what the library itself reads, and what it leaves out in silence."""

import io
import json
import re
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from configs import CorpusFiles, UserError
from configs.load import parse_run
from data_pipeline.preparation.raw import webdataset
from data_pipeline.preparation.raw.corpus import corpus_units
from data_pipeline.preparation.raw.lines import corpus_paths
from tests.data_pipeline.preparation.raw.reading import PACKERS, Pairs, pairs_of, parts_of, read

Members = Sequence[tuple[str, bytes | str]]
TEXTS: dict[str, Any] = {"source_field": "en.txt", "target_field": "fr.txt"}


def write(path: Path, members: Members, form: int = tarfile.PAX_FORMAT) -> None:
    """A tar file; a member whose content is text is a symbolic link to it."""
    with tarfile.open(path, "w", format=form) as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            if isinstance(content, str):
                info.type, info.linkname = tarfile.SYMTYPE, content
                tar.addfile(info)
            else:
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))


def sides(key: str, number: int) -> Members:
    """Two texts and a picture."""
    texts = [f"source ü{number}\n", f"cible {number}\nsur deux lignes\r\n"]
    members = [(f"{key}.en.txt", texts[0].encode()), (f"{key}.fr.txt", texts[1].encode()), (f"{key}.jpg", bytes(3000))]
    return members if number % 2 else members[::-1]


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_equal_to_the_library(tmp_path: Path, form: int) -> None:
    import webdataset as library

    long = "folder/" * 12 + "k"
    for shard in range(2):
        members: Members = [member for n in range(9) for member in sides(f"{long}{shard}{n}", n)]
        write(tmp_path / f"a-{shard:03d}.tar", members, form)
    pattern = "a-{000..001}.tar"
    files = parse_run({"prepare": {"train": {"webdataset": [pattern], **TEXTS}}}).prepare.train
    assert corpus_paths(files, "r") == [Path("r/a-000.tar"), Path("r/a-001.tar")]
    samples = library.WebDataset(str(tmp_path / pattern), shardshuffle=False)
    wanted: Pairs = [
        (sample["en.txt"].decode().rstrip(), sample["fr.txt"].decode().rstrip().replace("\n", " "))
        for sample in samples
    ]
    assert len(wanted) == 18
    for size in (4, 100):
        found = parts_of(files, tmp_path, size)
        assert [pair for _, _, raw in found for pair in pairs_of(raw)] == wanted
        assert not any(unit.is_seekable or span.left_out for unit, span, _ in found)


@pytest.mark.parametrize("suffix", PACKERS)
def test_fields_of_json(tmp_path: Path, suffix: str) -> None:
    rows = [{"en": f"a\n{n}", "t": {"fr": f"b {n}"}, "score": n / 8} for n in range(5)]
    write(tmp_path / "a.tar", [(f"{n}.Meta.JSON", json.dumps(row).encode()) for n, row in enumerate(rows)])
    (tmp_path / f"b.tar{suffix}").write_bytes(PACKERS[suffix]((tmp_path / "a.tar").read_bytes()))
    files = CorpusFiles(webdataset=[f"b.tar{suffix}"], source_field="meta.json.en", target_field="meta.json.t.fr")
    [unit] = corpus_units(files, str(tmp_path), {"qe": "meta.json.score", "none": "txt"})
    [(_, raw)] = unit.stream(0, 0, 10)
    assert pairs_of(raw) == [(f"a {n}", f"b {n}") for n in range(5)]
    assert raw.pairs().extra == {"qe": [str(n / 8) for n in range(5)], "none": [""] * 5}


def test_what_the_library_leaves_out_is_counted(tmp_path: Path) -> None:
    apart = [("x.en.txt", b"a"), ("y.en.txt", b"b"), ("x.fr.txt", b"A"), ("y.fr.txt", b"B")]
    lost: Members = [
        ("README", b"text"),
        (".hidden", b"text"),
        ("__meta__/1.en.txt", b"x"),
        ("link.en.txt", "1.en.txt"),
    ]
    members: Members = [
        *lost,
        *sides("1", 1),
        *apart,
        ("2.fr.txt", b"alone"),
        *sides("3", 3),
        ("4.EN.txt", b"alone"),
        lost[0],
    ]
    write(tmp_path / "a.tar", members)
    for size in (1, 10):
        found = parts_of(CorpusFiles(webdataset=["a.tar"], **TEXTS), tmp_path, size)
        assert [pair[0] for _, _, raw in found for pair in pairs_of(raw)] == ["source ü1", "source ü3"]
        counts: dict[str, int] = {}
        for _, span, _ in found:
            for reason, count in span.left_out.items():
                counts[reason] = counts.get(reason, 0) + count
        assert counts == {
            "members without an extension": 3,
            "members that are no files, or metadata by their names": 2,
            "samples without en.txt": 3,
            "samples without fr.txt": 3,
        }


FAULTS: list[tuple[Members, dict[str, Any], str]] = [
    (
        sides("1", 1),
        {},
        "has no sample with source and target (source_field, target_field); its members' extensions: en.txt, fr",
    ),
    ([("README", b"x")], TEXTS, "its members' extensions: none"),
    ([("1.en.txt", b"\xff"), ("1.fr.txt", b"x")], TEXTS, "sample 1: en.txt is no UTF-8; allowed is text"),
    ([("1.en.txt", b"a\0"), ("1.fr.txt", b"x")], TEXTS, "sample 1: en.txt holds a NUL"),
    ([("1.en.txt", b"a"), ("1.en.txt", b"x")], TEXTS, "cannot be read by webdataset: 1.en.txt: duplicate file name"),
    ([("1.j", b"{")], {"source_field": "j.a", "target_field": "j.b"}, "sample 1: j is no JSON; allowed"),
    ([("1.j", b'{"a": 1}')], {"source_field": "j.a", "target_field": "j.b"}, "sample 1: j.a is a int; allowed is a s"),
    ([("1.j", b'{"a": "\\ud800"}')], {"source_field": "j.a", "target_field": "j.b"}, "j.a holds half of a surrogate"),
]


@pytest.mark.parametrize(("members", "fields", "message"), FAULTS, ids=range(len(FAULTS)))
def test_faults(tmp_path: Path, members: Members, fields: dict[str, Any], message: str) -> None:
    write(tmp_path / "a.tar", members)
    with pytest.raises(UserError) as caught:
        read(CorpusFiles(webdataset=["a.tar"], **fields), tmp_path)
    assert re.search(f"a.tar: .*{re.escape(message)}", str(caught.value))
    assert "\n" not in str(caught.value)


def _with_size(content: bytes, size: int) -> bytes:
    """The archive whose first header claims a size."""
    info = tarfile.TarInfo.frombuf(content[:512], "utf-8", "strict")
    info.size = size
    return info.tobuf(tarfile.GNU_FORMAT) + content[512:]


def test_an_archive_that_does_not_end_where_it_should(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`tarfile`, and so the library, takes all of these but the first for the end, and says nothing."""
    files = CorpusFiles(webdataset=["a.tar"], **TEXTS)
    write(tmp_path / "a.tar", [member for n in range(9) for member in sides(f"{n}", n)])
    content = (tmp_path / "a.tar").read_bytes()
    sample = 2 * 1024 + 512 + 3072  # headers, texts and picture
    cases = [
        (content[: sample + 700], "cannot be read by webdataset: unexpected end of data"),
        (content[: 3 * sample], "is cut short: the end of the archive is missing"),
        (content[: 3 * sample + 100], "is broken at byte"),
        (
            content[: 3 * sample] + b"x" * 512 + content[3 * sample + 512 :],
            f"is broken at byte {3 * sample}, or another",
        ),
        (content + content, f"is broken at byte {9 * sample}, or another archive was joined to it"),
        (b"x" * 2000, "cannot be read by webdataset: invalid header"),
        (b"", "cannot be read by webdataset: empty file"),
        (_with_size(content, 1 << 60), f"0.jpg has {1 << 60:,} bytes; allowed is a whole tar"),
    ]
    for broken, message in cases:
        (tmp_path / "a.tar").write_bytes(broken)
        with pytest.raises(UserError) as caught:
            read(files, tmp_path)
        assert f"a.tar: {message}" in str(caught.value)
    monkeypatch.setattr(webdataset, "MAX_LINE_BYTES", 10)
    (tmp_path / "a.tar").write_bytes(content)
    with pytest.raises(UserError, match=r"a\.tar: 0.fr.txt has more than 10 bytes"):
        read(files, tmp_path)


def test_only_files_are_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the library would run in a shell, or fetch, is the name of a file here."""
    monkeypatch.chdir(tmp_path)
    for name in ("pipe:touch ran", "http://localhost/a.tar"):
        with pytest.raises(UserError, match="no such file"):
            read(CorpusFiles(webdataset=[name], **TEXTS), Path())
    assert not (tmp_path / "ran").exists()
    scored = {"webdataset": ["a-{0..1}.tar"], "score_files": {"qe": ["a"]}}
    with pytest.raises(UserError, match=r"train\.score_files: beside shards named with braces; name each"):
        parse_run({"prepare": {"train": scored}})
    with pytest.raises(UserError, match=r"webdataset: a-\{0\.\.: .*; write braces such as"):
        corpus_paths(CorpusFiles(webdataset=["a-{0.."]), "")
