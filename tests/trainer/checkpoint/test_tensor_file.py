"""The writer of safetensors files beside the library's own reader."""

import hashlib
import json
import threading
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from trainer.checkpoint import tensor_file
from trainer.checkpoint.tensor_file import Cancelled, TensorFile

TENSORS: dict[str, Tensor] = {
    "exp_avg/b.weight": torch.arange(12.0).view(3, 4).t(),  # not contiguous
    "a": torch.tensor(7.0),
    "empty": torch.empty(0, 5),
    "ü ": torch.tensor([float("nan"), float("inf"), -0.0, 1e-45]),
    "large": torch.randn(300, 100, generator=torch.Generator().manual_seed(1)),
}


def write(path: Path, tensors: dict[str, Tensor]) -> tuple[int, str]:
    with TensorFile(path, {name: t.shape for name, t in tensors.items()}) as file:
        for name, tensor in tensors.items():
            file.write(name, tensor)
        record = file.finish()
    return record.bytes, record.sha256


@pytest.mark.parametrize("tensors", [TENSORS, {}, {"one": torch.ones(1)}])
def test_the_library_reads_the_same_tensors(tensors: dict[str, Tensor], tmp_path: Path) -> None:
    path = tmp_path / "file.safetensors"
    size, sha256 = write(path, tensors)
    content = path.read_bytes()
    assert (len(content), hashlib.sha256(content).hexdigest()) == (size, sha256)
    read = load_file(path)
    assert set(read) == set(tensors)
    for name, tensor in tensors.items():
        assert read[name].shape == tensor.shape
        assert read[name].contiguous().view(-1).view(torch.int32).equal(tensor.reshape(-1).view(torch.int32)), name
    with safe_open(path, framework="pt") as file:
        assert sorted(file.keys()) == sorted(tensors)


def test_the_bytes_are_those_of_the_library_where_it_has_the_same_order(tmp_path: Path) -> None:
    tensors = {name: TENSORS[name].contiguous() for name in sorted(TENSORS)}
    write(tmp_path / "ours", tensors)
    write(tmp_path / "again", tensors)
    save_file(tensors, tmp_path / "theirs")
    ours, theirs = (tmp_path / "ours").read_bytes(), (tmp_path / "theirs").read_bytes()
    assert (tmp_path / "again").read_bytes() == ours
    lengths = [int.from_bytes(content[:8], "little") for content in (ours, theirs)]
    assert lengths[0] % 8 == 0
    headers = [json.loads(c[8 : 8 + n]) for c, n in zip((ours, theirs), lengths, strict=True)]
    assert headers[0] == headers[1]
    assert ours[8 + lengths[0] :] == theirs[8 + lengths[1] :]


def test_pieces_make_the_same_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = write(tmp_path / "whole", TENSORS)
    monkeypatch.setattr(tensor_file, "CHUNK_BYTES", 1000)
    assert write(tmp_path / "pieces", TENSORS) == whole


def test_what_does_not_come_next_is_refused(tmp_path: Path) -> None:
    with TensorFile(tmp_path / "file", {"a": (2,), "b": (3, 1)}) as file:
        for name, tensor in (
            ("b", torch.ones(3, 1)),
            ("a", torch.ones(3)),
            ("a", torch.ones(2, dtype=torch.float64)),
        ):
            with pytest.raises(ValueError, match="is not what comes next"):
                file.write(name, tensor)
        file.write("a", torch.ones(2))
        with pytest.raises(ValueError, match="b is missing"):
            file.finish()


def test_a_file_is_never_written_over_and_a_cancelled_one_ends(tmp_path: Path) -> None:
    cancelled = threading.Event()
    with TensorFile(tmp_path / "file", {"a": (2,)}, cancelled=cancelled) as file:
        cancelled.set()
        with pytest.raises(Cancelled):
            file.write("a", torch.ones(2))
    with pytest.raises(FileExistsError):
        TensorFile(tmp_path / "file", {})
