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

from data_pipeline.prepared.dataset import Dataset
from data_pipeline.prepared.index import DataError

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


class _Canary:
    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, ("canary",))


PICKLED = np.array([_Canary()], dtype=object)

MEMBER_FAULTS: list[tuple[str, Callable[[Members], Members], str]] = [
    ("half a sample", lambda m: m[:2], r"has members"),
    ("duplicate", lambda m: [*m, m[0]], r"has members"),
    ("extra", lambda m: [*m, ("000000-000000.txt", FILE, b"x")], r"has members .*000000-000000.txt"),
    (
        "pickle",
        lambda m: [*m, ("000000-000000.x.pyd", FILE, pickle.dumps(_Canary()))],
        r"has members .*000000-000000.x.pyd",
    ),
    ("other key", lambda m: [("7.len.npy", *m[0][1:]), *m[1:]], r"has members 000000-000000.src.npy, .*7.len.npy"),
    ("parent", lambda m: [*m, ("../x.npy", FILE, b"x")], r"has members"),
    ("symbolic link", lambda m: [(LEN, tarfile.SYMTYPE, b""), *m[1:]], r"has members"),
    ("pickled array", _with(SRC, lambda _: _npy(PICKLED, pickled=True)), r"cannot be decoded"),
    ("no array", _with(TGT, lambda _: b"hello"), r"cannot be decoded"),
    ("cut array", _with(SRC, lambda c: c[:-3]), r"cannot be decoded"),
    ("lengths swapped", _with(LEN, lambda c: _npy(np.load(io.BytesIO(c))[::-1])), r"not those of the length table"),
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
    assert len(dataset.read_block(1).lengths) == 32
    assert not (tmp_path / "canary").exists()
