"""What an index names is read, all of it and nothing else; what is missing, left over or unclear is refused by name."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from model.positions import SinusoidalPositions
from tests.zeromt.importing.made import TENSORS, edit_tensors, imported, refusal, save_marian
from tests.zeromt.importing.test_importing import check_same
from zeromt.importing.huggingface import load_huggingface

SOURCE, TARGET = [4, 9, 12, 30, 2], [1, 5, 8, 40]


@pytest.fixture(scope="module")
def untied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of many shards, whose matrices are all of their own."""
    folder = tmp_path_factory.mktemp("marian") / "untied"
    save_marian(folder, tie_word_embeddings=False, max_shard_size="4KB")
    return folder


def test_left_over_shards_are_not_read(tmp_path: Path) -> None:
    """Of an older, larger set: their names sort last, and their weights are others."""
    theirs = save_marian(tmp_path / "new", max_shard_size="4KB")
    save_marian(tmp_path / "old", seed=3)
    old = load_file(tmp_path / "old" / TENSORS)
    for number in (1, 99):
        save_file(old, tmp_path / "new" / f"model-{number:05}-of-00099.safetensors")
    check_same(tmp_path / "new", theirs, SOURCE, TARGET)


def test_untied_matrices_are_each_its_own(untied: Path) -> None:
    transformers = pytest.importorskip("transformers")
    check_same(untied, transformers.MarianMTModel.from_pretrained(untied).eval(), SOURCE, TARGET)


def test_tied_matrices_that_differ(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Transformers would take each as it is, with a warning; equal ones are one."""
    save_marian(tmp_path / "theirs")
    path = tmp_path / "theirs" / TENSORS
    shared = load_file(path)["model.shared.weight"]
    edit_tensors(path, {"lm_head.weight": shared.clone()})
    imported(tmp_path / "theirs", tmp_path / "run", capsys)
    edit_tensors(path, {"lm_head.weight": shared + 1})
    assert "lm_head.weight and model.shared.weight differ" in refusal(tmp_path / "theirs", tmp_path / "other", capsys)


@pytest.mark.parametrize("half", [torch.float32, torch.float16, torch.bfloat16])
def test_stored_positions_are_held_against_the_sinusoids(
    half: torch.dtype, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Older checkpoints hold them; trained ones would be lost."""
    save_marian(tmp_path / "theirs")
    model, _ = load_huggingface(tmp_path / "theirs")
    positions = model.source_embedding.positions
    assert isinstance(positions, SinusoidalPositions)
    table = positions.table.to(half)
    name = "model.encoder.embed_positions.weight"
    edit_tensors(tmp_path / "theirs" / TENSORS, {name: table})
    imported(tmp_path / "theirs", tmp_path / "run", capsys)
    edit_tensors(tmp_path / "theirs" / TENSORS, {name: table.roll(1, 0)})
    assert f"{name} holds other positions" in refusal(tmp_path / "theirs", tmp_path / "other", capsys)
