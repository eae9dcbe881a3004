"""Written, read again, and the same to the bit; ties are stored once."""

from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file

from data_pipeline.tokenizer import Tokenizer
from tests.zeromt.exporting.made import make_run
from zeromt.exporting import as_safetensors, command
from zeromt.exporting.as_safetensors import load_exported
from zeromt.exporting.check import ExportError


def export(run: Path, output: Path, **changes: Any) -> None:
    names = ("dtype", "quantization", "source", "reference")
    options: dict[str, Any] = {**dict.fromkeys(names), "raw_weights": False}
    assert command.run(run=str(run), format="safetensors", output=str(output), **{**options, **changes}) == 0


@pytest.mark.parametrize(
    ("options", "num_matrices"),
    [
        ({}, 1),
        ({"tied_embeddings": "decoder"}, 2),
        ({"tied_embeddings": "none", "norm": "rms", "positions": "rotary"}, 3),
        ({"norm": "scalar", "norm_position": "post"}, 1),
    ],
)
def test_round_trip(options: dict[str, Any], num_matrices: int, joint: Tokenizer, tmp_path: Path) -> None:
    model = make_run(tmp_path / "run", joint, **options)
    export(tmp_path / "run", tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text()
    assert f"| parameters | {sum(p.numel() for p in model.parameters()):,} |" in card
    assert set(yaml.safe_load(card.split("---")[1])) >= {"pipeline_tag", "tags"}
    again, tokenizer = load_exported(tmp_path / "out")
    assert tokenizer.fingerprint == joint.fingerprint
    theirs = dict(again.named_parameters())
    assert all(p.equal(theirs[name]) for name, p in model.named_parameters())
    stored = load_file(tmp_path / "out" / "model.safetensors")
    assert sum(t.shape == (joint.source_vocab_size, 16) for t in stored.values()) == num_matrices


def test_half_precision(joint: Tokenizer, tmp_path: Path) -> None:
    model = make_run(tmp_path / "run", joint)
    export(tmp_path / "run", tmp_path / "out", dtype="float16")
    stored = load_file(tmp_path / "out" / "model.safetensors")
    assert all(stored[name].equal(p.half()) for name, p in model.named_parameters())
    again, _ = load_exported(tmp_path / "out")
    assert next(again.parameters()).dtype == torch.float32


def test_a_wrong_weight_writes_nothing(joint: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_run(tmp_path / "run", joint)

    def careless(weights: dict[str, torch.Tensor], path: Path, **options: Any) -> None:
        name = "decoder.norm.bias"
        save_file({**weights, name: weights[name] + 1}, path, **options)

    monkeypatch.setattr(as_safetensors, "save_file", careless)
    with pytest.raises(ExportError, match=r"decoder\.norm\.bias"):
        export(tmp_path / "run", tmp_path / "out")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run"]
