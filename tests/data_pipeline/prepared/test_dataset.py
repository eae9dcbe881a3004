"""A dataset that is whole, and ones that are not: refused by name."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from configs import UserError
from data_pipeline.preparation.report import inspect_dataset
from data_pipeline.prepared.dataset import Dataset
from data_pipeline.prepared.index import DataError
from tests.data_pipeline.prepared.conftest import SHARD, third

Rewrite = Callable[[Path, Callable[[dict[str, Any]], None]], None]


def test_a_whole_dataset(small: Dataset) -> None:
    assert small.num_pairs == 1000
    assert (small.index.source_language, small.index.target_language) == ("en", "fr")
    assert small.lengths.shape == (1000, 2)
    assert small.tokenizer.fingerprint == small.tokenizer_fingerprint
    assert Dataset.load(small.folder).fingerprint == small.fingerprint
    lines, whole = inspect_dataset(small.folder)
    assert whole
    text = "\n".join(lines)
    for part in ("en -> fr", "pairs     1,000", "valid 1,000", "500 source, 500 target", "whole     yes"):
        assert part in text


@pytest.mark.parametrize(
    "url",
    [
        "pipe:cat /etc/passwd",
        "scp:host:/x",
        "file:/x",
        "file:///etc",
        "unknown+x:y",
        "ftp://host/x",
        "http:/host/x",
        "http://",
        "http:///x",
        "https://host/x?signature=1",
    ],
)
def test_other_urls_are_refused(url: str) -> None:
    for form in (url, Path(url)):
        with pytest.raises(UserError, match="give a folder of this machine, or a URL http://HOST/PATH, https://"):
            Dataset.load(form)
    with pytest.raises(UserError, match="give a folder of this machine"):
        Dataset.load(Path("http://host/x"))  # a path has lost a slash


def _flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def _replace_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _truncate(path: Path, size: int) -> None:
    os.truncate(path, size)


FILE_FAULTS: list[tuple[str, Callable[[Path], object], str]] = [
    ("shard missing", lambda f: (f / SHARD).unlink(), rf"{SHARD}: cannot be read: No such file"),
    ("shard short", lambda f: _truncate(f / SHARD, 5000), rf"{SHARD}: has 5000 bytes"),
    ("shard of zero bytes", lambda f: _truncate(f / SHARD, 0), rf"{SHARD}: has 0 bytes"),
    ("shard is a folder", lambda f: _replace_by_folder(f / SHARD), rf"{SHARD}: is a folder"),
    ("tokenizer replaced", lambda f: _flip(f / "tokenizer.model", 50), r"tokenizer.model: its hash is not"),
    ("lengths changed", lambda f: _flip(f / "lengths.npy", 200), r"lengths.npy: its hash is not"),
    ("blocks changed", lambda f: _flip(f / "blocks.npy", 500), r"blocks.npy: its hash is not"),
    ("held-out changed", lambda f: _flip(f / "valid.source.txt", 5), r"valid.source.txt: its hash is not"),
    ("lengths missing", lambda f: (f / "lengths.npy").unlink(), r"lengths.npy: cannot be read: No such file"),
    ("index missing", lambda f: (f / "index.json").unlink(), r"holds no index.json"),
    ("index is not JSON", lambda f: (f / "index.json").write_text("{"), r"index.json: is not a dataset index"),
    ("index is a list", lambda f: (f / "index.json").write_text("[]"), r"index.json: version None"),
    ("index is binary", lambda f: (f / "index.json").write_bytes(b"\xff\xfe"), r"index.json: is not a dataset index"),
]


@pytest.mark.parametrize(("name", "fault", "message"), FILE_FAULTS, ids=[name for name, *_ in FILE_FAULTS])
def test_broken_folders_are_refused(copied: Path, name: str, fault: Callable[[Path], object], message: str) -> None:
    fault(copied)
    with pytest.raises(UserError, match=message) as caught:
        Dataset.load(copied)
    assert "\n" not in str(caught.value)
    if name.startswith(("shard", "lengths", "tokenizer")):
        lines, whole = inspect_dataset(copied)
        assert not whole
        assert "NO" in "\n".join(lines)


def _set(*keys: Any) -> Callable[[dict[str, Any]], None]:
    """Sets the item at all but the last of the keys to the last."""

    def change(tree: Any) -> None:
        for key in keys[:-2]:
            tree = tree[key]
        tree[keys[-2]] = keys[-1]

    return change


INDEX_FAULTS = [
    ("version", _set("version", 1), "version 1"),
    ("absolute", _set("shards", 0, "file", "/etc/passwd"), r"shards.0.file: '/etc/passwd'"),
    ("parent", _set("shards", 0, "file", "../x.tar"), r"shards.0.file: '../x.tar'"),
    ("nested", _set("length_table", "file", "a/b"), r"length_table.file: 'a/b'"),
    ("url", _set("shards", 0, "file", "pipe:cat"), r"shards.0.file: 'pipe:cat'"),
    ("unknown key", _set("color", "red"), r"color"),
    ("pairs", _set("pairs", 999), r"lengths.npy: it is an array of uint16 \(1000, 2\); allowed is <u2 \(999, 2\)"),
    ("negative", _set("pairs", -1), r"pairs: -1"),
    ("text for a number", _set("pairs", "1000"), r"pairs: '1000'"),
    ("blocks", _set("blocks", 31), r"blocks.npy: it is an array of "),
    ("fingerprint", _set("tokenizer", "fingerprint", "0" * 64), r"fingerprint is not that of its files"),
    ("vocabulary", _set("tokenizer", "source_vocab_size", 9999), r"the tokenizer is not the index's"),
]


@pytest.mark.parametrize(("name", "change", "message"), INDEX_FAULTS, ids=[name for name, *_ in INDEX_FAULTS])
def test_broken_indexes_are_refused(
    copied: Path, rewrite_index: Rewrite, name: str, change: Callable[[dict[str, Any]], None], message: str
) -> None:
    rewrite_index(copied, change)
    with pytest.raises(UserError, match=message):
        _ = Dataset.load(copied).tokenizer


def test_a_large_length_table_is_verified_when_it_is_used(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hashing it at the start would read gigabytes on every rank."""
    monkeypatch.setattr("data_pipeline.prepared.dataset.MAX_HASHED_LENGTHS", 1000)
    dataset = Dataset.load(copied)
    _flip(copied / "lengths.npy", 128 + 4 * int(dataset.blocks["first_pair"][third(dataset)]))
    dataset = Dataset.load(copied)
    dataset.read_block(third(dataset) - 1)
    with pytest.raises(DataError, match=rf"{SHARD}: block 000001-000002: its lengths are not those of the length"):
        dataset.read_block(third(dataset))
    problems = "\n".join(dataset.verify())
    assert "lengths.npy: its hash is not the index's" in problems
    assert "block 000001-000002" in problems
    _flip(copied / "blocks.npy", 500)  # a large table too, but no other hash stands for it
    with pytest.raises(DataError, match=r"blocks.npy: its hash is not the index's"):
        Dataset.load(copied)


@pytest.mark.parametrize("where", ["header", "tokens"])
def test_a_flipped_byte_stops_the_stream_by_name(copied: Path, where: str) -> None:
    dataset = Dataset.load(copied)
    row = dataset.blocks[third(dataset)]
    position = int(row["offset"]) + (10 if where == "header" else 1500)
    _flip(copied / SHARD, position)
    dataset = Dataset.load(copied)  # sizes are right, so only reading can tell
    with pytest.raises(DataError, match=rf"{SHARD}: block 000001-000002: its hash is not the index's"):
        dataset.read_block(third(dataset))
    problems = dataset.verify()
    assert len(problems) == 2
    assert all(SHARD in problem for problem in problems)
