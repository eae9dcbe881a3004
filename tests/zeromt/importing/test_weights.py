"""What an index names is read, all of it and nothing else; what is missing, left over or unclear is refused by name."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from model.positions import SinusoidalPositions
from tests.zeromt.importing.made import INDEX, TENSORS, edit_tensors, imported, refusal, save_marian
from tests.zeromt.importing.test_importing import check_same
from zeromt.importing.huggingface import load_huggingface

SOURCE, TARGET = [4, 9, 12, 30, 2], [1, 5, 8, 40]


@pytest.fixture(scope="module")
def untied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of many shards, whose matrices are all of their own."""
    folder = tmp_path_factory.mktemp("marian") / "untied"
    save_marian(folder, tie_word_embeddings=False, max_shard_size="4KB")
    return folder


@pytest.fixture
def shards(untied: Path, tmp_path: Path) -> Path:
    """A copy to spoil."""
    shutil.copytree(untied, tmp_path / "shards")
    return tmp_path / "shards"


def shard_of(folder: Path, name: str) -> str:
    return str(json.loads((folder / INDEX).read_text())["weight_map"][name])


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


@pytest.mark.parametrize("name", ["lm_head.weight", "model.encoder.embed_tokens.weight", "final_logits_bias"])
def test_a_missing_shard_is_named(name: str, shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (shards / (lost := shard_of(shards, name))).unlink()
    error = refusal(shards, tmp_path / "run", capsys)
    assert lost in error
    assert name in error


def test_a_shard_without_what_the_index_promises(
    shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "model.decoder.layers.0.fc1.weight"
    edit_tensors(shards / shard_of(shards, name), without=name)
    assert f"lacks {name}, which {INDEX} promises" in refusal(shards, tmp_path / "run", capsys)


@pytest.mark.parametrize("name", ["lm_head.weight", "model.decoder.layers.0.fc1.weight"])
def test_a_tensor_in_a_file_that_the_index_does_not_name_for_it(
    name: str, shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two files hold it: which is meant cannot be told."""
    value = torch.zeros_like(load_file(shards / shard_of(shards, name))[name])
    other = shard_of(shards, "final_logits_bias")
    assert other != shard_of(shards, name)
    edit_tensors(shards / other, {name: value})
    assert f"{other} holds {name}" in refusal(shards, tmp_path / "run", capsys)


def test_one_file_beside_shards(shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_file({"a": torch.zeros(1)}, shards / TENSORS)
    assert f"holds two checkpoints, {TENSORS} and the shards of {INDEX}" in refusal(shards, tmp_path / "run", capsys)


@pytest.mark.parametrize(
    ("index", "said"),
    [
        ("{", "cannot be read"),
        ("[]", "has no weight_map"),
        ('{"weight_map": {}}', "has no weight_map"),
        ('{"weight_map": {"a": 1}}', "has no weight_map"),
        ('{"weight_map": {"a": "../model.safetensors"}}', "names ../model.safetensors"),
        ('{"weight_map": {"a": "pytorch_model.bin"}}', "names pytorch_model.bin"),
        (None, "and no model.safetensors.index.json, only model-00001-of-"),
    ],
)
def test_an_index_that_is_none(
    index: str | None, said: str, shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if index is None:
        (shards / INDEX).unlink()
    else:
        (shards / INDEX).write_text(index)
    assert said in refusal(shards, tmp_path / "run", capsys)


@pytest.mark.parametrize(
    ("ties", "name", "said"),
    [
        (False, "lm_head.weight", "lm_head.weight is missing, which config.json ties to no other matrix"),
        (False, "model.encoder.embed_tokens.weight", "model.encoder.embed_tokens.weight is missing, which config"),
        (False, "model.decoder.embed_tokens.weight", "model.decoder.embed_tokens.weight is missing, which config"),
        (True, "model.shared.weight", "model.encoder.embed_tokens.weight is missing, and so is"),
        (True, "final_logits_bias", "final_logits_bias is missing"),
        (True, "model.encoder.layers.1.fc2.bias", "model.encoder.layers.1.fc2.bias is missing in"),
    ],
)
def test_a_missing_tensor_is_named(
    ties: bool, name: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another matrix stands for it only where config.json ties them."""
    save_marian(tmp_path / "theirs", tie_word_embeddings=ties)
    edit_tensors(tmp_path / "theirs" / TENSORS, without=name)
    assert said in refusal(tmp_path / "theirs", tmp_path / "run", capsys)


@pytest.mark.parametrize(
    "name",
    [
        "model.encoder.layernorm_embedding.weight",
        "model.encoder.layers.2.fc1.weight",
        "model.encoder.layer_norm.weight",
        "model.decoder.layers.0.self_attn.q_proj.lora_A.weight",
        "model.encoder.layers.0.self_attn.relative_bias",
    ],
)
def test_a_tensor_that_would_be_left_over_is_named(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_marian(tmp_path / "theirs")
    edit_tensors(tmp_path / "theirs" / TENSORS, {name: torch.ones(16)})
    assert f"holds {name}, which no marian model" in refusal(tmp_path / "theirs", tmp_path / "run", capsys)


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


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("final_logits_bias", torch.ones(1, 3), "final_logits_bias has 3 numbers"),
        ("model.shared.weight", torch.ones(20, 16), "model.encoder.embed_tokens.weight is (20, 16)"),
        ("model.decoder.layers.0.fc1.bias", torch.ones(24, dtype=torch.int8), "fc1.bias is int8 (24,)"),
    ],
)
def test_a_tensor_of_another_kind(
    name: str, value: torch.Tensor, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_marian(tmp_path / "theirs")
    edit_tensors(tmp_path / "theirs" / TENSORS, {name: value})
    assert said in refusal(tmp_path / "theirs", tmp_path / "run", capsys)


def test_an_adapter_is_not_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_marian(tmp_path / "theirs")
    (tmp_path / "theirs" / "adapter_config.json").write_text("{}")
    assert "holds an adapter" in refusal(tmp_path / "theirs", tmp_path / "run", capsys)
