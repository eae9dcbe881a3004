"""Blocks of a hostile dataset, whose every hash and size agrees."""

import io
import os
import pickle
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_pipeline.prepared.dataset import DataError, Dataset

Forge = Callable[[Sequence[tuple[str, bytes, bytes]] | bytes], Path]


def _npy(array: np.ndarray[Any, Any], pickled: bool = False) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=pickled)
    return buffer.getvalue()


FILE = tarfile.REGTYPE

LEN, SRC, TGT = "000000-000000.len.npy", "000000-000000.src.npy", "000000-000000.tgt.npy"

Members = list[tuple[str, bytes, bytes]]


def _with(name: str, change: Callable[[bytes], bytes]) -> Callable[[Members], Members]:
    return lambda members: [(n, k, change(c) if n == name else c) for n, k, c in members]


def _array(change: Callable[[Any], Any]) -> Callable[[bytes], bytes]:
    return lambda content: _npy(change(np.load(io.BytesIO(content))))


def _first(value: int) -> Callable[[Any], Any]:
    def change(array: Any) -> Any:
        array[0] = value
        return array

    return change


class _Canary:
    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, ("canary",))


PICKLED = np.array([_Canary()], dtype=object)

MEMBER_FAULTS: list[tuple[str, Callable[[Members], Members], str]] = [
    ("half a sample", lambda m: m[:2], r"has members"),
    ("duplicate", lambda m: [*m, m[0]], r"duplicate file name"),
    ("extra", lambda m: [*m, ("000000-000000.txt", FILE, b"x")], r"has members .*000000-000000.txt"),
    (
        "pickle",
        lambda m: [*m, ("000000-000000.x.pyd", FILE, pickle.dumps(_Canary()))],
        r"has members .*000000-000000.x.pyd",
    ),
    ("other key", lambda m: [("7.len.npy", *m[0][1:]), *m[1:]], r"too many values to unpack"),
    ("absolute", lambda m: [*m, ("/etc/x.npy", FILE, b"x")], r"too many values to unpack"),
    ("parent", lambda m: [*m, ("../x.npy", FILE, b"x")], r"too many values to unpack"),
    ("symbolic link", lambda m: [(LEN, tarfile.SYMTYPE, b""), *m[1:]], r"has members"),
    ("hard link", lambda m: [(LEN, tarfile.LNKTYPE, b""), *m[1:]], r"has members"),
    ("pickled array", _with(SRC, lambda _: _npy(PICKLED, pickled=True)), r"cannot be decoded"),
    ("no array", _with(TGT, lambda _: b"hello"), r"cannot be decoded"),
    ("empty member", _with(TGT, lambda _: b""), r"cannot be decoded"),
    ("zip of arrays", _with(TGT, lambda _: b"PK\x03\x04" + bytes(50)), r"cannot be decoded"),
    ("cut array", _with(SRC, lambda c: c[:-3]), r"cannot be decoded"),
    ("floats", _with(SRC, _array(lambda a: a.astype(np.float32))), r"has an array of float32"),
    ("wide ids", _with(SRC, _array(lambda a: a.astype(np.uint32))), r"has an array of uint32"),
    ("too few tokens", _with(SRC, _array(lambda a: a[:-1])), r"has an array of uint16 \(\d+,\)"),
    ("two axes", _with(SRC, _array(lambda a: a[None])), r"has an array of uint16 \(1, \d+\)"),
    ("too few pairs", _with(LEN, _array(lambda a: a[:-1])), r"has an array of uint16 \(31, 2\)"),
    ("lengths off", _with(LEN, _array(lambda a: a + np.uint16(1))), r"its lengths do not add up"),
    ("lengths swapped", _with(LEN, _array(lambda a: a[::-1])), r"its lengths are not those of the length table"),
    ("unknown id", _with(TGT, _array(_first(500))), r"has ids from \d+ to 500"),
    ("special id", _with(SRC, _array(_first(2))), r"has ids from 2 to"),
    ("nothing", lambda m: [], r"cannot be decoded"),
]


@pytest.mark.parametrize(("name", "change", "message"), MEMBER_FAULTS, ids=[name for name, *_ in MEMBER_FAULTS])
def test_hostile_blocks_are_refused(
    forge: Forge,
    first_members: dict[str, bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    change: Callable[[Members], Members],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    members = [(member, FILE, content) for member, content in first_members.items()]
    dataset = Dataset.load(forge(change(members)))  # every hash and size agrees
    with pytest.raises(DataError, match=rf"train-000000.tar: block 000000-000000: .*{message}"):
        dataset.read_block(0)
    assert dataset.read_block(1).lengths.shape == (32, 2)
    assert not (tmp_path / "canary").exists()


@pytest.mark.parametrize("content", [b"", b"garbage" * 200, bytes(1536)])
def test_what_is_no_tar_is_refused(forge: Forge, content: bytes) -> None:
    dataset = Dataset.load(forge(content))
    with pytest.raises(DataError, match=r"train-000000.tar: block 000000-000000"):
        dataset.read_block(0)
