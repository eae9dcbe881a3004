"""What identifies a model: its weights, vocabulary and section `model`, wherever and whenever it was trained."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.small import small_runs
from trainer.runs.identity import model_identity
from trainer.runs.layout import CONFIG, MANIFEST


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A checkpoint's folder."""
    newest = max((small_runs() / "runs/small/checkpoints").glob("step-*"))
    return Path(shutil.copytree(newest, tmp_path / "checkpoint"))


def changed(folder: Path, name: str) -> None:
    """Change the hash of the files whose names begin so."""
    manifest = json.loads((folder / MANIFEST).read_text())
    for file in manifest["files"]:
        if file.startswith(name):
            manifest["files"][file]["sha256"] = "0" * 64
    (folder / MANIFEST).write_text(json.dumps(manifest))


def configured(folder: Path, change: Callable[[dict[str, dict[str, object]]], None]) -> None:
    """Change the configuration."""
    tree = yaml.safe_load((folder / CONFIG).read_text())
    change(tree)
    (folder / CONFIG).write_text(yaml.safe_dump(tree))


def test_state_and_paths_do_not_count(checkpoint: Path) -> None:
    before = model_identity(checkpoint)
    changed(checkpoint, "state.json")
    changed(checkpoint, "optimizer-")
    configured(checkpoint, lambda tree: tree["prepare"].update(output="elsewhere"))
    assert model_identity(checkpoint) == before


@pytest.mark.parametrize("name", ["model-", "tokenizer"])
def test_weights_and_vocabulary_count(checkpoint: Path, name: str) -> None:
    before = model_identity(checkpoint)
    changed(checkpoint, name)
    assert model_identity(checkpoint) != before


def test_the_model_counts(checkpoint: Path) -> None:
    before = model_identity(checkpoint)
    configured(checkpoint, lambda tree: tree["model"].update(attention={"num_heads": 1}))
    assert model_identity(checkpoint) != before
